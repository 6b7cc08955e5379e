"""Translates wire types into cached objects and engine values.

Fields that cannot be read are reported in the cached object's ``decode_error``; they raise no error.
"""
