/* What the files of staging share: stage.c decides, copy.c compares, send.c reads and sends. */
#pragma once

#include "git/git.h"
#include "git/hidden.h"
#include "workspace/workspace.h"

struct stage {
	struct workspace_engine *engine;
	struct workspace_state *state;
	const struct workspace_act *act;
	const char *path; /* of the tree that is staged */
	int root_fd;      /* of it */
	int run_fd;       /* the run's directory of results */
	json_t *skipped;  /* of left_out_add */
	uint64_t skipped_count;
	uint64_t files, dirs, symlinks, bytes; /* of the tree */
	uint64_t sent, sent_bytes, removed;    /* what was done in the place */
	uint64_t hidden_by_name;               /* that no rule hides */
	struct workspace_progress now, told;
	uint8_t *chunks; /* of files that are sent; NULL: none was yet */
	bool again;      /* the repository moved under our hands: a second try may succeed */
};

void stage_skip(struct stage *s, const char *path, const char *reason);
/* Tells how far it is and looks whether to stop: ERR_CANCELLED. */
int stage_tick(struct stage *s, struct error *err);
/* Scans the host's tree to DIR/name with the guards of the state. */
int stage_scan(struct stage *s, bool hash, const char *name, struct error *err);

/* Mode copy. */
int stage_copy(struct stage *s, struct error *err);

/*
 * The queue of what was put into the place and is not answered yet: the place's manifest gets its
 * entries in order, with the identities the relay answers and the hashes of what was sent.
 */
struct send_queue {
	struct manifest_writer *place; /* where entries go; NULL: nowhere yet */
	struct buf queue;
	size_t at;
	/* The file being sent; its answer may come before all is known about it. */
	bool open, answered;
	const char *open_path;
	struct tree_entry answer;
};
/* An entry that stays as it is; or a symlink, which is not answered. */
int send_queue_keep(struct send_queue *o, const struct tree_entry *entry, struct error *err);
/* A directory that is about to be put. */
void send_queue_expect(struct send_queue *o, const struct tree_entry *entry);
/* A file is about to be put; then what became of it. `drop`: it is put once more. */
void send_queue_open(struct send_queue *o, const char *path);
int send_queue_close(struct send_queue *o, const struct tree_entry *entry, bool drop,
		     struct error *err);
void send_queue_forget(struct send_queue *o); /* it was skipped, and is not answered */
/* For struct place_put. */
int send_queue_written(void *arg, const struct tree_entry *entry, struct error *err);
bool send_queue_is_empty(const struct send_queue *o);
void send_queue_free(struct send_queue *o);

/*
 * Hashing in a thread of its own, beside whoever reads and sends: both take about as long. What is
 * given stays as it is until the next give, or finish, has returned.
 */
struct side_hash;
struct side_hash *side_hash_start(void); /* NULL: there is no thread to be had */
void side_hash_give(struct side_hash *h, const void *data, size_t len);
void side_hash_finish(struct side_hash *h, uint8_t digest[TREE_HASH_SIZE]); /* frees it */
static inline void side_hash_dropp(struct side_hash **h)
{
	uint8_t ignored[TREE_HASH_SIZE];

	if (*h)
		side_hash_finish(*h, ignored);
}
#define _cleanup_side_hash_ _cleanup_(side_hash_dropp)

enum sent { SENT_WHOLE, SENT_CHANGING, SENT_GONE, SENT_UNREADABLE };
/*
 * Sends the file `entry` names and completes the entry: state and hash of what was sent. `open`
 * gives a descriptor of it, or -1 with errno.
 */
typedef int file_open_fn(void *arg, const struct tree_entry *entry);
int send_file(struct stage *s, struct tree_writer *put, struct send_queue *outbox,
	      file_open_fn *open, void *arg, struct tree_entry *entry, enum sent *sent,
	      struct error *err);
int send_content(struct stage *s, struct tree_writer *put, struct send_queue *outbox,
		 const void *content, const struct tree_entry *entry, struct error *err);
