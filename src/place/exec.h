/*
 * One command in a place, held by the place's relay: processes, pipes, terminals and unread output
 * live there and outlive this server. Callers see only this header; a dialer (link/dialer.h) connects
 * to the relay, link/link.c is one authenticated connection, link/loop.c the one thread that moves
 * frames.
 *
 * A place's relay is made when it is first needed (places_open only remembers how): an idle
 * lease costs nothing. Making is idempotent by place id, connecting raises the epoch, so after a
 * crash of anybody the same calls lead to the same relay. The epoch is (boot epoch << 32 |
 * connections so far): it rises with every connect of every start without a write to the database.
 *
 * The environment of the command is exactly what is asked for plus a minimal fixed set (PATH, HOME,
 * LANG, TERM=dumb, USER, LOGNAME, SHELL, TMPDIR when absent); the server's own is never inherited.
 *
 * Threads: every call may block and is safe from any thread. Output of an exec is appended to its
 * log by the thread in exec_wait, which acknowledges to the relay what the log has in files; frames
 * wait for it in a queue bounded by the credit it gives.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/id.h"
#include "base/json.h"
#include "link/dialer.h"
#include "place/shell/shell.h"
#include "record/kinds.h"
#include "runlog/runlog.h"
#include "secret/mask.h"

#define PLACE_KEY_SIZE 32

struct places; /* every place and exec of this server */
struct exec;

struct places_options {
	struct clock *clock;
	const char *owner; /* node id: marks every process started here, for audit */
	int64_t boot_epoch;
	const char *runtime_path; /* the keeper's directory, made 0700 */
	const char
		*keeper_path; /* program; NULL: berth-keeper beside this program, then in libexec */
	const char *relay_path; /* program; NULL: berth-relay beside the keeper */
	int64_t absence_ms;     /* default for places; 0: 15 min */
	int64_t open_files;     /* soft limit that the keeper, and what it starts, gets; 0: ours */
};
int places_new(const struct places_options *options, struct places **places, struct error *err);
/* Lets go of every relay and leaves it running; execs in exec_wait return ERR_UNAVAILABLE. */
void places_free(struct places *places);
/* Wakes every exec_wait with ERR_UNAVAILABLE without ending anything: the server is going, the work
 * stays. */
void places_detach(struct places *places);

/* What holds for every command of a place. */
struct place_commands {
	char **env;               /* "K=V"; what a command brings itself counts more. NULL: none */
	bool own_environment;     /* who the user is says the place, not this host */
	int64_t wall_ms;          /* no command runs longer; 0: no limit */
	const char *missing_hint; /* said when there is no such program; static, or NULL */
};

struct exec_place {
	const char *place_id;
	int64_t generation;
	uint8_t key[PLACE_KEY_SIZE]; /* made with the holding, kept on the place's row */
	const char *root;            /* directory that is the place; NULL: the whole host */
	const char *cwd;    /* where commands start that name no directory; NULL: root, or / */
	int64_t absence_ms; /* 0: the server's default */
	const void
		*sandbox; /* a native place: one SANDBOX frame of the wire; root and cwd are NULL */
	size_t sandbox_len;
	const char *label; /* the caller's name for it, told by places_labels; NULL for none */
	uint32_t pool;     /* native: so many like it are kept ready */
	bool must_exist; /* it was made before: without a relay it is lost, not to be made again */
	struct place_commands commands; /* copied */
	/*
	 * What reaches its relay; nothing in it: the keeper of this host. Taken over by places_open,
	 * whatever it answers.
	 */
	struct dialer_source dialer;
	/*
	 * For a place that cannot take a relay: everything goes through these calls (place/shell/shell.h),
	 * which may be made until the place is stopped and no call is under way. Taken over by
	 * places_open, whatever it answers.
	 */
	struct one_shot one_shot;
};
/*
 * A place takes execs and file calls only while it is open, and only for the generation it was
 * opened for. Unknown places are closed (ERR_LEASE_ENDED). Opening again with the same generation
 * changes what holds for commands and, if one is given, the dialer; nothing else.
 */
int places_open(struct places *places, const struct exec_place *place, struct error *err);
/* That alone, if it is open for that generation. */
void places_set_commands(struct places *places, const struct exec_place *place);
/*
 * Makes the relay now instead of with the first exec, so that what cannot be had is known; *walls
 * (wire/walls.h) is what a native place achieved. The place must be open.
 */
int places_make(struct places *places, const char *place_id, int64_t generation, int64_t wait_ms,
		uint64_t *walls, struct error *err);
/* Labels of all places and kept files: each once, NULL-terminated, allocated. */
int places_labels(struct places *places, char ***labels, struct error *err);
/* Ends whatever place has the label; none is success. */
int places_stop_label(struct places *places, const char *label, int64_t wait_ms, struct error *err);
/*
 * Where on this host the layer is that a place wrote over its workspace (SANDBOX overlay):
 * absolute, allocated. Also when its relay has died, as long as the keeper has its remains;
 * ERR_NOT_FOUND when it has none any more, or the place never had such a layer.
 * ERR_UNSUPPORTED_ENV: the place is on another host. The place must be open.
 */
int places_workspace_upper(struct places *places, const char *place_id, int64_t generation,
			   char **path, struct error *err);
/* Files kept between relays (the sandbox's `store`); none is success. */
int places_remove_store(struct places *places, const char *store, int64_t wait_ms,
			struct error *err);
bool places_has_store(struct places *places, const char *store);

/*
 * Closes the place, ends every exec of it with that reason and the relay with it; returns when
 * nothing of it is left on its host or the deadline passed (ERR_TIMEOUT). Its relay need not answer:
 * the dialer ends the place. Also for places that are not open (left by an earlier server); a place
 * without a relay is success. After an error the place is closed, and may be stopped again.
 */
int places_stop(struct places *places, const char *place_id, enum exec_reason why, int64_t wait_ms,
		struct error *err);
/* The same for a place that need not be open and may be on another host. The source is borrowed. */
int places_stop_through(struct places *places, const char *place_id,
			const struct dialer_source *dialer, enum exec_reason why, int64_t wait_ms,
			struct error *err);

/*
 * Pausing (wire/message.h): every command of the place is frozen, or goes on. The place must be
 * open; its relay is made if there is none. ERR_UNSUPPORTED_ENV, said before anything is done,
 * where commands cannot be frozen; places_check_pause only asks that. After any other failure of
 * places_pause the place counts as paused.
 */
int places_check_pause(struct places *places, const char *place_id, int64_t generation,
		       struct error *err);
int places_pause(struct places *places, const char *place_id, int64_t generation, bool paused,
		 struct error *err);
/* It was paused before this server came: said again to its relay, now or when that is reached. */
void places_expect_pause(struct places *places, const char *place_id, int64_t generation);

/* Whether a command runs there now: a place in use is not idle. */
bool places_is_busy(struct places *places, const char *place_id);
/*
 * Whether a command of a holder who has left may be running there, which nothing could end (a place
 * without a relay): not before its timeout has passed may somebody else have the place.
 */
bool places_is_unfenced(struct places *places, const char *place_id);

struct exec_terminal {
	uint16_t rows, cols;
	const char *term; /* NULL: xterm-256color */
};

struct exec_spec {
	const char *exec_id; /* uuid, chosen by the caller; the same id again is the same exec */
	const char *place_id;
	int64_t generation;
	char *const *argv;      /* never a shell string */
	char *const *env;       /* "K=V", on top of the minimal set; NULL for none */
	const char *cwd;        /* absolute; NULL: the place's */
	const char *user;       /* NULL: the place's */
	const void *stdin_data; /* the whole of stdin; NULL with !stdin_stream is /dev/null */
	size_t stdin_len;
	bool stdin_stream; /* stdin comes by places_write_stdin, after stdin_data */
	const struct exec_terminal *terminal; /* NULL: pipes */
	int64_t timeout_ms;                   /* 0: none; then as places_cancel */
	/* Its own, borrowed until exec_wait returned; a terminal's output is RUNLOG_PTY. */
	struct runlog *log;
	/*
	 * The relay keeps the exit until places_forget. For callers who write the end down after
	 * exec_wait: were they to die in between, adopting it gives the same end again.
	 */
	bool keep_exit;
	/*
	 * What a later server has to know of the command, WIRE_NOTE_MAX bytes at most: the relay keeps
	 * it with the exec and gives it back (struct held_exec). NULL: nothing.
	 */
	const char *note;
	/* What its output must not show (secret/mask.h); NULL: nothing. Adopting needs it again. */
	struct mask *mask;
};

struct exec_result {
	int exit_code;   /* -1 when it did not exit */
	char signal[16]; /* "SIGKILL" or "" */
	enum exec_reason reason;
	int64_t duration_ms;
	int64_t stdout_bytes, stderr_bytes;
};

/*
 * ERR_COMMAND_NOT_FOUND / ERR_COMMAND_DENIED when it cannot start; ERR_LEASE_ENDED or
 * ERR_STALE_GENERATION when the place is closed or open for another holder; ERR_LEASE_LOST when its
 * relay is gone. After success exec_wait must be called exactly once; it frees the exec.
 */
int exec_start(struct places *places, const struct exec_spec *spec, struct exec **exec,
	       struct error *err);
/*
 * Adopts an exec that an earlier server started: output goes on at the end of the log. spec needs
 * exec_id, place_id, generation and log only; stdin that was not all sent goes on when the spec
 * brings all of it again. exec_expect asks no relay: from then on the exec keeps its place busy and
 * can be cancelled by its id, which its relay hears when it is reached. ERR_PROCESS_LOST: its place
 * has no relay. Then exec_attach, which does not mistake "cannot be reached now" for "lost", as
 * often as it takes: 0, exec_wait is due (also for one that should have ended by now); or -1, and
 * for good only with ERR_NOT_FOUND (it was never started) or ERR_LEASE_LOST (its relay is dead, by
 * its keeper's word, or surely so because no server could speak to it for all of its absence), both
 * answers for exec_abandon, and with ERR_UNAVAILABLE (the server is going, or another one has
 * adopted the place).
 */
int exec_expect(struct places *places, const struct exec_spec *spec, struct exec **exec,
		struct error *err);
int exec_attach(struct exec *exec, int64_t wait_ms, struct error *err);
void exec_abandon(struct exec *exec); /* one that is not going to be waited for */
/*
 * Appends output to the log until the exec has ended, then has the relay forget it. Survives broken
 * connections by attaching again. A relay that died: success with reason lease_lost.
 * ERR_UNAVAILABLE: the server is going (places_detach); the exec lives on.
 */
int exec_wait(struct exec *exec, struct exec_result *result, struct error *err);

/*
 * The same for commands that may be over in a moment: 1 and the end, or 0 when that takes longer
 * than wait_ms, or than words_ms once it has begun to talk; exec_wait is still due then. -1 as
 * exec_wait.
 */
int exec_wait_briefly(struct exec *exec, int64_t wait_ms, int64_t words_ms,
		      struct exec_result *result, struct error *err);
/* As spec.keep_exit; before exec_wait. */
void exec_keep_exit(struct exec *exec);

/* Ends what keep_exit asked for. An exec or a place that is not there any more is success. */
int places_forget(struct places *places, const char *place_id, int64_t generation,
		  const char *exec_id, struct error *err);

/*
 * By id, from any thread. ERR_NOT_FOUND: no such exec is going here. The whole tree is asked to
 * leave and killed after a grace of 5 s; at_once: without it. Asking again only matters with
 * at_once.
 */
int places_cancel(struct places *places, const char *exec_id, enum exec_reason why, bool at_once);
/*
 * Ends every exec of a place that this server knows of, at once, and returns when each has been
 * waited for; the place stays open. ERR_TIMEOUT when one would not go.
 */
int places_end_execs(struct places *places, const char *place_id, enum exec_reason why,
		     int64_t wait_ms, struct error *err);
enum exec_target { EXEC_TO_PROCESS, EXEC_TO_GROUP, EXEC_TO_TREE };
int places_signal(struct places *places, const char *exec_id, int number, enum exec_target target,
		  struct error *err);
int places_resize(struct places *places, const char *exec_id, uint16_t rows, uint16_t cols,
		  struct error *err);
/* Blocks while the command does not read, at most until the deadline (ERR_TIMEOUT); *taken says how
 * much went. */
int places_write_stdin(struct places *places, const char *exec_id, const void *data, size_t len,
		       bool end, int64_t wait_ms, size_t *taken, struct error *err);

/*
 * Commands that relays hold (survey.c). places_await_reached waits until the relay of an open
 * place was reached anew and says which, each time once; `again`: not for the first time. False:
 * the server is going. places_ask_again has it come up once more.
 */
struct reached_place {
	char place_id[65];
	int64_t generation;
	bool again;
};
bool places_await_reached(struct places *places, struct reached_place *out);
void places_ask_again(struct places *places, const struct reached_place *reached);
/* All open places that may have a relay; *list is allocated. */
size_t places_with_relay(struct places *places, struct reached_place **list);

struct held_exec {
	char id[ID_SIZE];
	bool running; /* false: it has ended, and the relay keeps how */
	int64_t started_ms;
	char *note; /* of its spec, as the relay gave it back: to be checked; NULL: none */
};
struct held_execs {
	struct held_exec *items;
	size_t count;
};
void held_execs_clear(struct held_execs *held);
#define _cleanup_held_execs_ _cleanup_(held_execs_clear)
/* The relay is asked; each exec that was not forgotten. */
int places_list_execs(struct places *places, const struct reached_place *reached, int64_t wait_ms,
		      struct held_execs *held, struct error *err);
/*
 * The same from the files of the relay, which need not answer or live: execs with a note that run
 * for longer than a moment, and those that have ended, also when they were forgotten since. None is
 * success, and so are files that cannot be read from this host. The place must be open.
 */
int places_recorded_execs(struct places *places, const struct reached_place *place,
			  struct held_execs *held, struct error *err);
bool places_has_exec(struct places *places, const char *exec_id); /* it is going here */
/* Kills the tree of a command that nobody here waits for. */
int places_end_unknown(struct places *places, const struct reached_place *reached,
		       const char *exec_id, struct error *err);

/* The relay keeps its note. False: the place has no relay, or one of an earlier revision. */
bool exec_is_noted(const struct exec *exec);
/* As the relay sees it. -1: no relay sees it, and it begins only with exec_wait. */
pid_t exec_pid(const struct exec *exec);

/* For doctor and audit: {keeper:{ok, pid, version, places}, relay:{...}} and every kernel object of
 * ours. */
json_t *places_health(struct places *places);
/*
 * Objects of this data directory that none of `place_ids` (count of them) explains: array of {kind:
 * "process"|"cgroup"|"mount"|"socket"|"directory"|"relay", id, where, reason}.
 */
json_t *places_audit(struct places *places, const char *const *place_ids, size_t count,
		     struct error *err);
/* Relays of places that nobody holds: ends them. Returns how many. */
int places_reap(struct places *places, const char *const *place_ids, size_t count,
		struct error *err);
