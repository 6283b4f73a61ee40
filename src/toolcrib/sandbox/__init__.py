"""Sandbox of commands: one program with its children, apart from the rest of the machine.

    find_sandbox    bubblewrap where it works; else Landlock or Seatbelt where the configuration allows it; else none,
                    where the operator accepts that; an image of containers where one is named
    open(command)   check ──► Comparison.begin ──► process.start ──► Running … ──► Compared.finish
                    words     what is there now    the process        output        what it left is put aside

    detection        which one this machine has; `Bubblewrap`, `Unsandboxed`
    bubblewrap       its command line, and the bounds of each command
    landlock, inside/confine, inside/answer   a launcher that restricts itself, and the supervisor behind it
    seatbelt, container                       the other two
    seccomp          the filter of kernel calls
    egress, inside/listen, inside/connect     the way out to named hosts
    protected_paths  what a command may neither change nor see
    leftovers        files that start programs, and what is done about new ones

A crib has at most one sandbox, which `crib.workspaces.Shells` looks for in a thread. A sandbox has no state of its own
but the comparison: each command has its processes, descriptors and temporary folder, gone with the context of `open`.
"""
