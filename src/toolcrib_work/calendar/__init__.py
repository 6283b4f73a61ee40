"""The calendar of a user and of projects: operations `cal.*`.

    read      accounts that were not tried for a minute: sync ──> own tables ──> result
    change    own tables, "pending" ──> result ··> sync of its calendar; a failure is a warning of the result

Every operation works on the own tables, with or without a calendar server; `sync` keeps both in step.
"""
