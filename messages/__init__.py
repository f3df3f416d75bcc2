"""Texts of messages to users: how they name options, other libraries' names, commands that install packages."""
