"""Files that a server of a project runs, pinned by content when the user confirms the project.

    words, named_files   what command, arguments and variables name       runner_files   what runners take unnamed
    sources              what these load of the project                   packages       installed trees, as one pin
    digests              pins of single files                             awaited_pins   what was missing then

`pins` puts them together: `launch_pins` at the confirmation, `changed_files` before each start. All of it blocks, and
runs in a thread.
"""
