"""The steps, one file each. They do not see one another; `dispatch.default` puts them in order."""
