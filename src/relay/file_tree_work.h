/*
 * What the children of file_tree.h share: records in and out by blocking pipes, directories of the
 * tree, and the word about a failure. They run alone in their process, so waiting is fine.
 */
#pragma once

#include <sys/stat.h>
#include "filetree/entry.h"
#include "relay/relay.h"
#include "wire/tree_record.h"

struct tree_job {
	const struct relay *relay;
	const struct wire_message *request;
	int in_fd, out_fd;
};

/* Each returns 0 when it could say how it ended (DONE or FAILED), else an errno. */
int tree_scan_work(struct tree_job *job);
int tree_hash_work(struct tree_job *job);
int tree_put_work(struct tree_job *job);
int tree_get_work(struct tree_job *job);

/* Records to the server, collected in one buffer. -1: the relay does not want them any more. */
struct tree_out {
	int fd;
	struct buf buf;
};
#define TREE_OUT_PORTION (256u << 10)
int tree_out_flush(struct tree_out *out);
/* Sends when there is enough of it. */
int tree_out_settle(struct tree_out *out);
int tree_out_entry(struct tree_out *out, enum record_kind kind, const struct tree_entry *entry);
int tree_out_path(struct tree_out *out, enum record_kind kind, const char *path, size_t len);
/* The last word. Both return what the work returns. */
int tree_out_done(struct tree_out *out);
#define _cleanup_tree_out_ _cleanup_(tree_out_free)
void tree_out_free(struct tree_out *out);
int tree_out_failed(struct tree_out *out, enum wire_error_code code, int errnum, const char *fmt,
		    ...) __attribute__((format(printf, 4, 5)));

/* Records from the server. */
struct tree_in {
	int fd;
	struct tree_out *out; /* sent before waiting */
	uint8_t *data;
	size_t begin, end;
	uint32_t content_left; /* of a CONTENT that is handed out as it comes */
	bool pours;            /* the taker pours: long content is left where it is */
	bool lean;             /* more of it is likely: only a header is read next */
};
void tree_in_init(struct tree_in *in, int fd, struct tree_out *out);
void tree_in_free(struct tree_in *in);
#define _cleanup_tree_in_ _cleanup_(tree_in_free)
/*
 * 1: `record` is the next one, valid until the next call; CONTENT may come in smaller pieces than
 * it was sent in, with `pours` also as an empty one. 0: the server has gone, or broke off. -1 with
 * ERR_PROTOCOL: no record.
 */
int tree_in_next(struct tree_in *in, struct record *record, struct error *err);
/*
 * Content that was not read yet goes from the pipe straight to where it is wanted in a file. How
 * many bytes; 0 when it has to be read by tree_in_next; -errno.
 */
ssize_t tree_in_pour(struct tree_in *in, int fd, uint64_t at);
/* A path of the tree as text; false when it is none. */
bool tree_in_path(const void *bytes, size_t len, char out[TREE_PATH_MAX + 1]);

/* The root of the request, to be read. -errno. */
int tree_root_open(const struct relay *relay, const char *root);

/*
 * The directory that was used last, kept open: entries come in order, so most are in it. It is
 * found from the root anew whenever another one is wanted, by openat2 beneath it and through no
 * link; what is then done in it is done by descriptor and name.
 */
struct tree_dir {
	int root;
	int fd; /* -1: none */
	size_t len;
	char path[TREE_PATH_MAX + 1];
};
/* The directory of `path` (of root itself for a path without a slash), and the name in it. -errno.
 */
int tree_dir_of(struct tree_dir *dir, const char *path, const char **name);
void tree_dir_forget(struct tree_dir *dir);
/* The root, too. */
void tree_dir_close(struct tree_dir *dir);
#define _cleanup_tree_dir_ _cleanup_(tree_dir_close)
/* A directory or file beneath a root. -errno. */
int tree_open(int root, const char *path, int flags);

/* Opens a regular file to be read, and nothing else: ENXIO for another type. -errno. */
int tree_open_file(struct tree_dir *dir, const char *path, struct stat *st);
/* Same file in the same state. */
bool tree_same_stat(const struct stat *a, const struct stat *b);
