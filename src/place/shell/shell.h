/*
 * One-shot calls: how commands run in a place that cannot take a relay (another system or
 * processor, a provider that offers nothing but "execute"). A call is one command from its start to
 * its end: all of its input goes in at once, all of its output comes back at once.
 *
 * The shell runner (shell.c, shell_files.c, shell_stream.c) offers place/exec.h and place/files.h on top of
 * them, and is honest about what it lacks. Refused with ERR_UNSUPPORTED_ENV and a message that says
 * why: terminals and their size, standard input that goes on, other users, signals (but for KILL to
 * the whole tree, which is the same as cancelling). Lost: the order between standard output and
 * standard error, output while the command runs, and output past ONE_SHOT_OUTPUT_MAX. A command
 * cannot be taken up by another server, because nobody there holds it: what became of it is not
 * known (ERR_PROCESS_LOST). Nothing in the place keeps an earlier holder out: its fencing is
 * `server`.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/error.h"

/* Of each stream; what is more is read and dropped. */
#define ONE_SHOT_OUTPUT_MAX ((size_t)8 << 20)
/* A call always has an end, because it cannot be looked for later; 4 h unless another was asked
 * for. */
#define ONE_SHOT_TIMEOUT_MS ((int64_t)4 * 3600 * 1000)

struct one_shot_call {
	char *const *argv;
	/* All of it, but for what only the place knows of its own user (HOME, USER, ...). */
	char *const *env;
	const char *cwd;   /* absolute; NULL: the place's own */
	const void *input; /* all of standard input; NULL: none */
	size_t input_len;
	int64_t timeout_ms; /* above 0 */
	size_t output_max;  /* of each stream */
	int cancel_fd;      /* readable: nobody wants it any more; -1: none */
};

struct one_shot_result {
	int exit_code; /* -1 when it did not exit */
	int signal;    /* that ended it, or 0 */
	bool timed_out;
	bool cancelled; /* cancel_fd was heeded before the command had ended */
	/* timed_out or cancelled, and the command may be running all the same: there was no way to
	 * end it. It ends by its own timeout. */
	bool may_run;
	struct buf out, err;
	bool out_cut, err_cut; /* there was more */
};
void one_shot_result_clear(struct one_shot_result *result);
#define _cleanup_one_shot_result_ _cleanup_(one_shot_result_clear)

/*
 * Blocks until the command has ended, its timeout has passed, or cancel_fd is readable; then it
 * ends the command with everything it started, if it can, and returns soon in any case. Errors:
 * ERR_COMMAND_NOT_FOUND and ERR_COMMAND_DENIED when it cannot start, ERR_LEASE_LOST when the place
 * is gone, ERR_TIMEOUT when nobody knows what became of it; everything else: it did not run, or was
 * ended. Safe from many threads at once.
 */
typedef int one_shot_fn(void *arg, const struct one_shot_call *call, struct one_shot_result *result,
			struct error *err);

struct one_shot {
	one_shot_fn *call; /* NULL: the place has a relay */
	void *arg;
	void (*free)(void *arg); /* NULL: nothing to free */
};
