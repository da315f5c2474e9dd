/*
 * The keeper: makes places on this host, is parent of their relays, and tears down what is left of
 * them, whoever else has died. One per directory, one thread, one loop.
 *
 *     DIR/keeper.lock            held while a keeper runs
 *     DIR/keeper.sock            where clients ask; only the keeper's own user and root are heard
 *     DIR/places/<id>/recipe     what must be undone; on disk before anything is made, gone last
 *     DIR/places/<id>/relay      pid and start time of the relay
 *     DIR/places/<id>/s          the relay's socket        spool/  its spool        log  its stderr
 *     DIR/places/<id>/root/      the root of a place of kind dir that was given none
 *     DIR/places/<id>/files/     what a native place writes, unless it is kept in a store
 *     DIR/places/<id>/stale-*    layers of an earlier holding over a workspace, from a store
 *     DIR/stores/<name>/         files of native places that outlive their relays; range: whose
 *     DIR/trash/<unique>/        what places and stores that are gone left: children remove it
 *     DIR/etc/                   what native places see as /etc
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/error.h"
#include "base/id.h"
#include "sandbox/sandbox.h"
#include "wire/conn.h"
#include "wire/loop.h"
#include "wire/message.h"
#include "wire/place.h"

#define PLACE_RECIPE_NAME "recipe"
#define PLACE_RELAY_NAME "relay"
#define PLACE_LOG_NAME "log"
#define PLACE_ROOT_NAME "root"
#define PLACE_FILES_NAME "files"
#define REPORT_MAX 1024
#define NETS_MAX 16u
#define MOUNTS_MAX 64u

/* Drawn at the head of place.c, which has the one function that changes it. */
enum place_phase {
	PHASE_FOUND,  /* an earlier keeper left it, and this one has not judged it yet */
	PHASE_POOLED, /* made for the pool: its walls are being built */
	PHASE_WARM,   /* in the pool: its walls stand, its relay waits for a config */
	PHASE_MAKING, /* somebody's: its relay was started and does not listen yet */
	PHASE_ALIVE,  /* its relay listens */
	PHASE_DYING,  /* its processes are being ended; its files stay */
	PHASE_DEAD,   /* nothing runs; the files stay for a while: the server may want the spool */
	PHASE_ENDING, /* its processes are being ended; then its directory goes to trash/ */
};

struct client;

struct waiter {
	struct client *client;
	uint32_t stream;
};

struct place {
	struct place *next;
	struct keeper *keeper;
	char id[65];
	enum place_phase phase;
	enum wire_place_kind kind;
	char *root;
	bool made_root;
	char *cgroup; /* path, or NULL */
	char *label;  /* the server's name for it, or NULL */
	/* native */
	uint32_t range;       /* 1 + number of its uid range; 0: none */
	char *limits[LIMITS]; /* v1 cgroups, or NULL */
	char *store;          /* where its files are; NULL: in its own directory */
	bool overlaid;        /* its workspace is a layer over a directory of the host */
	int net_fd;           /* its network namespace, to be used again; -1: not kept */
	int mounts_fd;        /* its mount namespace; -1: the kernel ends it with the relay */
	struct shape *shape;  /* what others are like it, if those are kept ready; or NULL */
	uint64_t walls;
	char report[REPORT_MAX]; /* what its first process said before it became the relay */
	size_t report_len;
	uint64_t absence_ms;
	char boot[ID_SIZE];
	char tag[17]; /* argv[2] of its relay */
	pid_t pid;    /* 0: none */
	unsigned long long start_time;
	int pidfd; /* of a relay that an earlier keeper started; -1: it is our child */
	struct watch death;
	struct watch ready; /* our end of the config socket, closed by the relay when it listens */
	int ready_fd;
	int handed_fd; /* its first connection, on the way to it; -1: none */
	bool handed;   /* it went with the config, and who asked for the place waits to hear so */
	struct timer timer;
	int64_t cleaning_since;
	int retry_ms;
	char ended[64];
	/* Who waits for PLACE_MAKE or PLACE_DESTROY. */
	struct waiter maker, destroyer;
};

/* Files that outlive a place. */
struct store {
	struct store *next;
	struct keeper *keeper;
	char name[65];
	uint32_t range;              /* as a place's */
	bool removing;               /* where it is: it could not be moved to trash/ */
	struct waiter remove_waiter; /* then: the client that asked */
};

struct client {
	struct client *next;
	struct keeper *keeper;
	struct conn conn;
	struct watch watch;
	struct timer timer; /* hello deadline */
	struct timer end;
	bool greeted;
	bool broken;
	uint32_t highest_stream;
};

struct keeper {
	struct loop loop;
	char *dir;
	int dir_fd;
	int places_fd;
	int lock_fd;
	int relay_image; /* sealed memfd */
	char *cgroup;    /* base of the places' cgroups, or NULL */
	struct watch listener;
	struct watch signals;
	struct timer idle;
	int64_t idle_ms;
	int64_t started_ms;
	struct client *clients;
	unsigned client_count;
	struct place *places;
	struct store *stores;
	struct shape *shapes;
	struct timer pool_absence;
	bool stopping;
	struct sandbox_policy policy;
	struct range_book ranges;
	bool has_ranges; /* root, and the ids are nobody's */
	char ranges_why[512];
	struct limit_bases limits;
	char etc_tag[ETC_TAG_SIZE]; /* empty: not known yet */
	struct trash *trash;
	struct timer trash_timer;
	unsigned remover_count;
	int home_net_fd; /* the keeper's own; -1: none are kept */
	int nets[NETS_MAX];
	unsigned net_count;
	unsigned mounts_count;    /* of places, and of what they left, with a mounts_fd */
	struct buf unused_counts; /* what a network namespace tells that nobody was in */
};

/* image.c: the relay program as a sealed memfd, so that replacing the file disturbs nobody. */
int image_load(const char *path, int *fd, struct error *err);

/* cgroup.c: all calls do nothing on NULL paths. */
char *cgroup_base_make(const char *dir); /* NULL: no cgroup v2 can be used here */
int cgroup_make(const char *path, struct error *err);
int cgroup_open(const char *path);
void cgroup_kill(const char *path);
bool cgroup_is_empty(const char *path); /* also when it does not exist */
int cgroup_remove(const char *path);    /* with its children; 0 when it is gone */

/* recipe.c */
int recipe_write(const struct place *place, int place_fd, struct error *err);
bool recipe_is_durable(const struct place *place);
/* `unowned`: it is the pool's. */
int recipe_read(struct place *place, int place_fd, bool *unowned, struct error *err);
/* pid and start time; for finding the relay again, not for a machine that went down: not synced. */
int relay_write(const struct place *place, int place_fd, struct error *err);
bool relay_read(struct place *place, int place_fd);

/* native.c: between the steps of create.c, for places of kind native. */
struct birth;
int native_fill(struct place *place, const struct wire_place_make *m, struct sandbox_spec *spec,
		struct error *err);
int native_start(struct place *place, const struct sandbox_spec *spec, struct birth *b,
		 int place_fd, pid_t *pid, struct error *err);
void native_start_keeping(struct keeper *keeper, uint32_t uid_base);
/* All places are known: ranges that none of them has are free again. Also at the keeper's end. */
void native_adopted(struct keeper *keeper);
/* One place, store or directory in trash/ has no more files of the range; the last one frees it. */
void native_range_left(struct keeper *keeper, uint32_t range);
/* False: something of its cgroups is left. */
bool native_clean(struct place *place);
uid_t native_base(const struct place *place); /* first host id of its range; 0: none */

/* store.c */
struct store *store_find(struct keeper *keeper, const char *name);
/* Durable before its files are made. */
struct store *store_make(struct keeper *keeper, const char *name, const char *label, uint32_t range,
			 struct error *err);
int store_files(struct store *store, int *fd, struct error *err);
void store_load_all(struct keeper *keeper);
/* Answers the client, at once if its directory can be moved to trash/. */
void store_remove(struct store *store, struct client *client, uint32_t stream);
/* Of a removal where the store is. */
void store_removed(struct store *store);
void store_not_removed(struct store *store);
bool store_uses_range(const struct keeper *keeper, uint32_t range);

/* pool.c */
/* The shape of what is asked for, NULL when none like it are kept ready. */
struct shape *pool_shape(struct keeper *keeper, const struct wire_place_make *m,
			 const struct sandbox_spec *spec);
/* A prepared place, not in the pool any more, or NULL. `warm`: its walls stand. */
struct place *pool_take(struct shape *shape, const struct wire_place_make *m, bool *warm);
/* It has the id that is asked for. */
int pool_rename(struct place *place, const char *id, struct error *err);
void pool_refill(struct shape *shape);
void pool_lost(struct place *place);
void pool_drain(struct keeper *keeper);
void pool_client_left(struct keeper *keeper);
/* Stops the loop when nothing prepared and nothing that is being ended is left, or soon. */
void pool_stop(struct keeper *keeper);
bool pool_may_stop(const struct keeper *keeper);

/* trash.c */
/* What an earlier keeper left there. */
void trash_load_all(struct keeper *keeper);
/*
 * The place, of which nothing runs any more, is gone, and `place` is freed: now, or, where its
 * directory cannot be moved, when that is removed. False: too much waits to be removed; later.
 */
bool trash_place(struct place *place);
/* True: the store's directory is gone. False: it is being removed where it is. */
bool trash_store(struct store *store);
bool trash_reaped(struct keeper *keeper, pid_t pid);
bool trash_uses_range(const struct keeper *keeper, uint32_t range);
/* Whether something is left that no removal has failed for. */
bool trash_is_waiting(const struct keeper *keeper);
/* What they have of network namespaces is looked at now: one is needed. */
void trash_give_nets(struct keeper *keeper);
void trash_end(struct keeper *keeper);

/* netns_cache.c */
void net_start_keeping(struct keeper *keeper);
/* A network namespace for the place to be born in; -1: it makes its own. */
int net_take(struct place *place);
/* Its relay is there, in a namespace of its own. */
void net_note(struct place *place);
/* Takes the namespace of a place of which nothing runs any more; -1 is none. */
void net_keep(struct keeper *keeper, int *net_fd);

/* What the relay is born with, in the order of its descriptors from RELAY_FD_LISTEN on. */
struct birth {
	int fd[RELAY_FD_END - RELAY_FD_LISTEN];
	int log_fd;
	int relay_cgroup_fd;
};
static inline int *birth_fd(struct birth *b, int number)
{
	return &b->fd[number - RELAY_FD_LISTEN];
}
/* In the child: its descriptors take their places. */
int birth_arrange(struct birth *b);
void relay_exec(const struct place *place, int image);

/*
 * create.c: on success the place is in the list, and MAKING or already ALIVE. *handed, if it is one,
 * is taken for the first connection of the relay that is made.
 */
int place_make(struct keeper *keeper, const struct wire_place_make *m, int *handed,
	       struct place **out, enum wire_error_code *code, struct error *err);
/* The same for the pool: its relay gets no config yet. */
int place_prepare(struct keeper *keeper, const struct wire_place_make *m, struct shape *shape,
		  int *handed, struct place **out, enum wire_error_code *code, struct error *err);
bool place_id_is_valid(const char *id);
/* What the first process of a sandbox says, until the socket closes. True: it has. */
bool place_await(struct place *place);

/* place.c */
struct place *place_find(struct keeper *keeper, const char *id);
struct place *place_new(struct keeper *keeper, const char *id, enum place_phase phase);
void place_free(struct place *place);
/* The only writer of its phase; a move that the drawing does not have aborts. */
void place_move(struct place *place, enum place_phase phase);
/* Nobody's yet. */
static inline bool place_is_pooled(const struct place *place)
{
	return place->phase == PHASE_POOLED || place->phase == PHASE_WARM;
}
/* It has a relay that is not being ended. */
static inline bool place_is_up(const struct place *place)
{
	return place_is_pooled(place) || place->phase == PHASE_MAKING ||
	       place->phase == PHASE_ALIVE;
}
/* So that the end of its relay is not the end of its mounts, which takes longer. */
void place_hold_mounts(struct place *place);
void mounts_drop(struct keeper *keeper, int *mounts_fd);
struct place_paths {
	char socket[PATH_BOUND], upper[PATH_BOUND];
};
/* `out` points into `paths`. */
void place_describe(const struct place *place, struct place_paths *paths,
		    struct wire_place_state *out);

/* teardown.c */
void place_destroy(struct place *place);
/* Its directory is out of places/: its name is free, and who asked for that is answered. */
void place_gone(struct place *place);
/* Its relay and all that runs there; what it wrote is kept as when a relay dies. */
void place_end_processes(struct place *place);
/* Its relay is gone: clean up, and keep the remains as DEAD unless the relay ended by itself. */
void place_died(struct place *place, const char *why);
/* A child of the keeper ended; false when it was none of ours. */
bool place_reaped(struct keeper *keeper, pid_t pid, int status);
/* Takes over what an earlier keeper left. */
void place_adopt_all(struct keeper *keeper);

/* client.c */
int client_listen(struct keeper *keeper, struct error *err);
void client_place_ready(struct place *place);
void client_place_failed(struct place *place, enum wire_error_code code, const char *why);
void client_place_gone(struct place *place);
/* WERR_NONE: it is done. */
void client_answer(struct waiter *waiter, enum wire_error_code code, const char *why);
void client_close_all(struct keeper *keeper);
/* Looks whether nothing is left to do and starts or stops the idle clock. */
void keeper_check_idle(struct keeper *keeper);
