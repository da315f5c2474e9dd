/*
 * The one way to run git. It gets a clean environment and settings on its command line that win
 * over every config file, so that nothing a repository says makes a program run:
 *
 *     hooks, fsmonitor, ssh, credential helpers    switched off by name
 *     filters (clean, smudge, process)             only commands that look into work-tree files use
 *                                                  them; those run with a git directory of our own
 *                                                  (`git_dir`) whose config we wrote
 *     diff.external, textconv, gpg, editor, pager, only porcelain uses them; we call plumbing
 *     aliases
 *     lazy fetches of partial clones               every protocol is forbidden
 *
 * It runs as the repository's owner when the server is root. Four run at a time in a server, others
 * wait: hundreds of them made servers unresponsive.
 */
#pragma once

#include "git/repo.h"

#define GIT_TIMEOUT_MS 60000
#define GIT_LONG_TIMEOUT_MS 600000

struct git_call {
	const struct git_repo *repo;
	const char *const *args; /* behind "git" and our settings */
	char *const *env;        /* NAME=value beside the usual ones, or NULL */
	const char *git_dir;     /* NULL: the repository's own */
	const void *input;       /* standard input; NULL: none, or input_fd */
	size_t input_len;
	int input_fd;       /* 0: none */
	int output_fd;      /* 0: to `out` */
	size_t max_output;  /* of `out`; 0: 1 MiB; more is ERR_TOO_LARGE */
	int64_t timeout_ms; /* 0: GIT_TIMEOUT_MS */
	bool writes;        /* may take locks on the way */
	bool hostile;       /* works on bytes from a place: memory is limited as well */
	bool user_config;   /* reads the owner's own config too; for commands that look into no
			       contents */
};
/*
 * 0 when git ran: *status is its exit status; without `status` anything but 0 is ERR_UNPROCESSABLE
 * with git's own words. -1: it could not be started (ERR_UNPROCESSABLE when not installed), was
 * killed, took too long (ERR_TIMEOUT), said too much, was cancelled.
 */
int git_run(const struct git_call *call, struct buf *out, int *status, struct error *err);
#define GIT_ARGS(...) ((const char *const[]){ __VA_ARGS__, NULL })
