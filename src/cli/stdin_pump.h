/*
 * This program's standard input to a command far away, as it comes and however long it is.
 */
#pragma once

#include "cli/api.h"

/*
 * Begins a thread that reads until the end of the input or of the command. Nobody waits for it: a
 * read from a terminal may never return, and the program ends when the command does.
 */
int feed_stdin(struct cli *cli, const char *exec_id, struct error *err);
