"""The pages for operators, one module each.

Law: a page asks ``web.ops.board`` and acts by ``web.ops.actions``, nothing else; every action is a form that
works without a script; the address holds everything that a page shows. Imported by ``web.ops.dashboard`` and
``web.ops.live`` only.
"""
