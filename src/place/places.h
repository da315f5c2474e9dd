/*
 * What the files of this room share about places and execs.
 *
 *     places    tables of open places and of execs that are going, and the threads that mend
 *     open_place  one holding of a place: how to make its relay, and the link to it
 *     exec        one command; its thread in exec_wait takes what comes on its stream
 *
 * Lock order: places -> place -> exec -> link. No lock is held over a blocking call.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include "base/buf.h"
#include "base/cond.h"
#include "link/dialer.h"
#include "link/keeper.h"
#include "link/link.h"
#include "place/exec.h"
#include "wire/place.h"

#define MARK_OWNER "BERTH_OWNER"
#define PLACES_BUCKETS 256
/* So many relays may hang at once before the others wait for them, a second each. */
#define PLACES_MENDERS 4
#define NOT_STOPPED (-1)
/* Unread output of one exec in this process; topped up in portions. */
#define EXEC_WINDOW (1u << 20)

/* A dialer's source is replaced when its place is opened again, while a thread may be asking it. */
struct dialer_ref {
	atomic_int refs;
	struct dialer_source source;
};

struct open_place {
	struct open_place *next; /* in its bucket */
	atomic_int refs;
	struct places *places;
	char *id;
	int64_t generation;
	uint8_t key[PLACE_KEY_SIZE];
	char *root, *cwd;
	int64_t absence_ms;
	uint8_t *sandbox; /* NULL: not a native place */
	size_t sandbox_len;
	uint32_t pool;
	char *label;
	struct one_shot one_shot; /* instead of a relay */
	int stop_fd;              /* latch for its calls; -1 with a relay */

	pthread_mutex_t lock; /* everything below */
	pthread_cond_t changed;
	struct place_commands commands;
	struct dialer_ref *dialer; /* NULL: the keeper of this host */
	struct link *link;         /* NULL: none; may be down */
	bool connecting;           /* one thread is at it */
	bool made;                 /* there is, or was, a relay for this holding */
	bool fresh;                /* what an earlier holder left must be ended first */
	bool gone;       /* the relay is dead: nothing will come of this holding any more */
	bool superseded; /* another server has adopted it */
	bool paused;     /* what its relay is told whenever it is reached: pause.c */
	int64_t seen_ms; /* when its relay was last known to hear us; at first: when it was opened
			  */
	bool unlisted;   /* reached anew, and not asked for its commands since: survey.c */
	bool listed;     /* it was asked before */
	int strikes;     /* links that ended because the relay broke a rule */
	int stopped;     /* enum exec_reason, or NOT_STOPPED */
	unsigned calls;  /* one-shot calls that are under way */
	int64_t calls_until; /* when the last of all of them is over by its timeout */
	uint64_t walls;      /* of a native place that was made */
	/* The reconnectors', under the lock of all places. */
	bool to_reconnect;
	int64_t mend_at;
	int64_t mend_delay;
};

/* A one-shot call of a place that may go on without anybody; see places_is_unfenced. */
struct unfenced_call {
	struct unfenced_call *next;
	char *place_id;
	int64_t until;
};

/* Standard input on its way; kept until the relay must have it, because a broken link loses bytes.
 */
struct exec_input {
	struct buf bytes;
	uint64_t base; /* offset of bytes[0] */
	uint64_t sent;
	bool end; /* nothing follows `bytes` */
	bool end_sent;
	bool closed; /* nobody reads it */
};

struct exec {
	struct exec *next; /* in its bucket */
	atomic_int refs;
	struct places *places;
	struct open_place *place; /* a reference */
	char id[ID_SIZE];
	uint8_t wire_id[WIRE_ID_SIZE];
	bool terminal;
	bool keep_exit;
	bool noted; /* the relay keeps its note */
	struct runlog *log;
	int64_t started_mono;
	/*
	 * When the keeper ends its place unless the relay has reported its end, and the latest
	 * time that words of it may put that off to. 0: never.
	 */
	_Atomic(int64_t) overdue, overdue_last;
	pid_t pid;
	bool waited; /* under the lock of all places */

	/* Of the thread that starts or waits. */
	uint64_t taken;         /* offset of the next byte of output */
	int64_t acked_ms;       /* when the relay was last told what is stored */
	uint32_t owed;          /* credit to give back */
	struct mask_flow *flow; /* masks the output; NULL: nothing to mask */
	uint64_t known;         /* output before it is in the log; only `flow` reads it again */
	uint64_t channel_end[WIRE_CHANNELS];
	struct item *backlog; /* what came with the answer to the start */
	struct exec_result result;
	bool salvaged;  /* the result is there already */
	bool timed_out; /* the keeper had to end it */

	pthread_mutex_t lock;     /* everything below */
	struct stream *stream;    /* NULL: not attached */
	struct shell_exec *shell; /* in a place without a relay; else NULL */
	struct exec_input input;
	int kill_reason; /* enum exec_reason that was asked for, or NOT_STOPPED */
	bool kill_at_once;
};

struct places {
	struct clock *clock;
	char *owner;
	int64_t boot_epoch;
	int64_t absence_ms;
	char **defaults; /* environment */
	struct channel_loop *loop;
	/* This host: its keeper, which is the dialer of every place that names no other. */
	char *dir;
	int dirfd;
	struct keeper *keeper;
	atomic_uint connections;
	atomic_bool detached;

	pthread_mutex_t lock;   /* everything below */
	pthread_cond_t changed; /* an exec has left the table */
	pthread_cond_t reached; /* a place is unlisted, or the server is going */
	struct open_place *open[PLACES_BUCKETS];
	struct exec *execs[PLACES_BUCKETS];
	size_t waiting; /* threads in exec_wait */
	struct unfenced_call *loose;
	size_t surveyed; /* bucket of the place that was last asked for its commands */

	pthread_t reconnectors[PLACES_MENDERS];
	size_t reconnector_count;
	pthread_cond_t mend;
	bool reconnectors_stop;
};

unsigned places_bucket(const char *id);

/* place.c */
struct open_place *place_ref(struct open_place *place);
void place_unref(struct open_place *place);
static inline void place_unrefp(struct open_place **place)
{
	if (*place)
		place_unref(*place);
}
#define _cleanup_place_ _cleanup_(place_unrefp)
/* The open place, checked for the generation; a reference. Called with the lock of all places. */
struct open_place *place_admit_locked(struct places *places, const char *place_id,
				      int64_t generation, struct error *err);
struct open_place *place_admit(struct places *places, const char *place_id, int64_t generation,
			       struct error *err);
/*
 * The link to the place's relay, a reference; with `make` a relay is made when there is none yet.
 * ERR_LEASE_LOST: it is dead, or the place was stopped. ERR_UNAVAILABLE: this server is going, or
 * another one has adopted the place. ERR_TIMEOUT: neither is known yet.
 */
int place_link(struct open_place *place, bool make, int64_t deadline, struct link **link,
	       struct error *err);
/* What reaches its relay, ready to be asked. */
int place_dialer(struct open_place *place, int64_t deadline, struct dialer **out,
		 struct error *err);
/* The link that is there, or NULL; a reference. */
struct link *place_current_link(struct open_place *place);
void place_drop_link(struct open_place *place);
int place_stopped(struct open_place *place);
/* survey.c: the place is unlisted now. Called without locks. */
void place_note_reached(struct open_place *place);
/* pause.c: with the place's lock held. */
void place_repeat_pause_locked(struct open_place *place);
void *reconnector_main(void *places);

/* exec.c */
struct exec *exec_find_locked(struct places *places, const char *exec_id);
void exec_unref(struct exec *exec);

/* output.c: takes the items. 1: one was the exit, the result is filled. -1: the link is to blame
 * and down, or the server is going. */
int exec_take(struct exec *exec, struct item *items, struct error *err);
bool exec_is_detached(struct exec *exec);
/* Into the log, waiting while the disk is full. -1: the server is going. */
int exec_store(struct exec *exec, enum wire_channel channel, const void *data, size_t len,
	       struct error *err);
/* What the mask holds back goes into the log as it is. -1: the server is going. */
int exec_store_held(struct exec *exec, struct error *err);
/* Lost output leaves a hole of its own size in the log, so that offsets stay what they are. */
#define EXEC_LOST_MAX ((uint64_t)1 << 30)
int exec_store_hole(struct exec *exec, uint64_t len, struct error *err);

/* dead_relay.c: the end and the rest of the output, from what its dead relay left on disk. 1: the
 * result is filled; 0: it had not ended there, and err is untouched; -1: the server is going, or
 * what is there cannot be read now. */
int exec_from_dead_relay(struct exec *exec, struct error *err);
/*
 * The journal of a place's relay, frame by frame, until `take` returns 1 (the rest is no journal) or
 * -1. A torn end, and no journal at all, is success.
 */
typedef int journal_take_fn(void *arg, const struct frame *frame, struct error *err);
int journal_read(struct open_place *place, journal_take_fn *take, void *arg, struct error *err);

/* environment.c */
char **exec_default_environment(void);
/* NULL with ERR_VALIDATION. */
char **exec_environment(const struct places *places, const struct place_commands *commands,
			const struct exec_spec *spec, struct error *err);

/* input.c: with the exec's lock held. */
void exec_input_push(struct exec *exec);
/* A new attachment begins where the relay says. -1: that cannot be. */
int exec_input_resume(struct exec *exec, const struct wire_exec_started *started);

/* control.c: ends it through the relay, if that was asked for and there is a link. */
/* Its end is due so soon; past that, and some time, the keeper ends its place. */
void exec_expect_end(struct exec *exec, int64_t in_ms);
void exec_send_kill(struct exec *exec);

/* wire_names.c */
enum exec_reason reason_from_wire(uint32_t reason);
enum wire_reason reason_to_wire(enum exec_reason reason);
bool exec_wire_id(const char *text, uint8_t out[WIRE_ID_SIZE]);
void exec_text_id(const uint8_t id[WIRE_ID_SIZE], char out[ID_SIZE]);
void signal_name(int number, char out[16]);
