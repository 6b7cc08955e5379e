"""Builds what each page and its JSON show, for one reader. Pure: no names that the reader may not see leave here."""
