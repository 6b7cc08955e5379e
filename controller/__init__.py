"""The controller: watches the control plane, decides who runs next and where, and writes that."""
