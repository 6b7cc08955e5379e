"""Real Karmada on a localup control plane: three user-provided programs and their prerequisites.

Karmada is neither downloaded nor built. Given a folder with `karmada-controller-manager`, `karmada-scheduler` and
`karmada-webhook`, these replace the stand-in, and member clusters are real API servers (`localup.members`).
"""
