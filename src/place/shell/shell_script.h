/*
 * The script behind shell_files.c and shell_stream.c, and how it is asked. Paths and everything
 * else that comes from outside are arguments of it, never part of its text.
 */
#pragma once

#include "place/shell/shell_internal.h"

/* A path cut at its slashes. Without "..", which only the place could judge. */
struct shell_path {
	const char *name; /* the last component; "." for the root itself */
	char **dirs;      /* the components before it; NULL for none */
	char *text;       /* behind both */
};
int shell_path_parse(const char *path, struct shell_path *out, struct error *err);
void shell_path_clear(struct shell_path *path);
#define _cleanup_shell_path_ _cleanup_(shell_path_clear)

struct shell_ask {
	const char *verb;
	const char *words[6]; /* up to the first NULL */
	const struct shell_path *path;
	const struct shell_path *path2; /* behind the first one */
	char *const *more;              /* NULL for none */
	const void *input;
	size_t input_len;
	size_t output_max;
};
/* The answer's standard output. What the script refuses becomes the error a relay would give. */
int shell_ask(struct open_place *place, const struct shell_ask *ask, struct buf *out,
	      struct error *err);

/* One line of `stat` as the script prints it: "mode size mtime uid gid inode". */
struct shell_stat {
	struct file_info info; /* path and target are NULL */
	uint64_t inode;
};
/* Bytes taken, the closing mark included, or 0 when there is no such line. */
size_t shell_stat_parse(const char *text, size_t len, char closing, struct shell_stat *out);
/* The answer of STAT or a commit: a line and, for a link, its target. */
int shell_info_parse(const struct buf *answer, const char *path, struct file_info *out,
		     struct error *err);
