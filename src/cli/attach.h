/*
 * Sitting at the terminal of an exec: keys there, output here, until it ends or one leaves it with
 * ctrl-p ctrl-q. Comes back by itself when the connection or the server was lost.
 */
#pragma once

#include "cli/api.h"

struct attach {
	struct cli *cli;
	struct api *api; /* may be replaced when the server comes back */
	const char *exec_id;
	int64_t since;  /* offset of the first byte wanted */
	bool alone;     /* whoever sits there is replaced */
	bool is_run;    /* it may have to start first */
	bool may_start; /* a server that went away and stays away is started again */
	json_t *exit;   /* out: how it ended, or NULL; the caller's */
	bool left;      /* out: by the keys for it */
	char why[128];  /* out: when neither: what the server said */
};
/* The terminal must be here (terminal.h). */
int attach_terminal(struct attach *attach, struct error *err);
/* The exit code of the program that attached. */
int attach_finish(struct cli *cli, struct attach *attach);
