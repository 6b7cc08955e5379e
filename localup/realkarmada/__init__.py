"""The real Karmada on the ground of localup: programs that the user has, three of them, and what they need around them.

Nothing of Karmada is fetched or built here. Whoever has `karmada-controller-manager`,
`karmada-scheduler` and `karmada-webhook` names their folder, and they take the
place of the stand-in; their member clusters are real API servers (`localup.members`).
"""
