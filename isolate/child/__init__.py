"""What runs inside a cage: launcher, zygote, init and the tool's runtime. Standard library only, and nothing
of the host.

The folder is also loaded outside the package, under the name `fumehood_child`, by an interpreter started with
`-I -S`: imports here are relative, and a test refuses anything else.
"""
