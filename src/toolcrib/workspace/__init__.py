"""Where tools read and write files: the disk inside declared folders, changes that wait for review, working copies."""
