/*
 * How a relay is started, whoever starts it. Nothing is said in argv or environment but the place
 * id (argv[1], so that people and the keeper can tell relays apart in /proc). The relay inherits
 * exactly:
 */
#pragma once

/* A bound unix stream socket; the relay calls listen() itself, so that SO_PEERCRED names the relay.
 */
#define RELAY_FD_LISTEN 3
/*
 * A pipe or stream socket: one RELAY_CONFIG frame (stream 0), then the end. Holds the key. The
 * relay closes it when it listens, so a starter that keeps the other end of a socket learns when to
 * connect. One that cannot start sends a line with the reason before.
 */
#define RELAY_FD_CONFIG 4
#define RELAY_FAILED "failed "
/* The spool directory: journal `exits`, ring files, `ended`. Not for the payload. */
#define RELAY_FD_SPOOL 5
/* The root of all file requests and the base of relative working directories. */
#define RELAY_FD_ROOT 6
/*
 * With has_cgroup: the place's own cgroup v2 directory. The relay makes one child cgroup per
 * running exec in it (e1, e2, ..) and is itself in none of those.
 */
#define RELAY_FD_CGROUP 7
/*
 * With limit_fds: where a process writes "0" to enter a cgroup v1 that limits it. Opened by
 * somebody who may, so that an exec, which may not, can.
 */
#define RELAY_FD_LIMIT 8
#define RELAY_LIMITS_MAX 3
/* With a memory limit: the file with the line "oom_kill N", to be read again and again. */
#define RELAY_FD_OOM (RELAY_FD_LIMIT + RELAY_LIMITS_MAX)
#define RELAY_FD_END (RELAY_FD_OOM + 1)

/* Set in the environment of every exec, for finding strays where no cgroup holds them. */
#define RELAY_MARK_PLACE "BERTH_PLACE_ID"
#define RELAY_MARK_EXEC "BERTH_EXEC_ID"

/* Exit statuses of the relay, for its parent. Any other end was not meant. */
#define RELAY_EXIT_ABSENCE 10 /* nobody came within the absence TTL */
#define RELAY_EXIT_START 11   /* could not start; the reason is on stderr */

/* File in the spool directory that says why the relay ended: one line of text. */
#define RELAY_ENDED_FILE "ended"
#define RELAY_ENDED_ABSENCE "absence"
/*
 * File in the spool directory: the exits that were not forgotten, each an EXEC_STATE frame, then
 * what the server had not acknowledged of its output: OUTPUT frames on stream 0, or EXEC_RING when
 * it is in the file of that name. A command with a note that runs for longer than a moment is there
 * while it runs, too: EXEC_STATE running. So a server that cannot reach the relay knows what runs
 * there. The server trusts none of it.
 */
#define RELAY_JOURNAL_FILE "exits"
#define RELAY_RING_PREFIX "ring-" /* and the exec's id as text */
#define RELAY_RING_SEGMENTS 8192
#define RELAY_SEGMENT_SIZE 24 /* u64 offset, u64 channel offset, u32 length, u32 channel */

#define RELAY_PROGRAM_NAME "berth-relay" /* argv[0] */
#define PLACE_SOCKET_NAME "s"
#define PLACE_SPOOL_NAME "spool"
#define KEEPER_SOCKET_NAME "keeper.sock"
/* Files that outlive a relay: STORES_NAME/<store>/, with the server's name for them in a file. */
#define STORES_NAME "stores"
#define STORE_LABEL_NAME "label"
#define STORE_LABEL_MAX 512
/* What places and stores that are gone left; a name that ends so could not be removed yet. */
#define TRASH_NAME "trash"
#define TRASH_STUCK ".stuck"

#define PLACE_ABSENCE_MIN_MS 1000ull
#define PLACE_ABSENCE_MAX_MS (7ull * 24 * 3600 * 1000)
#define PLACE_RING_DEFAULT (4ull << 20)
#define PLACE_RING_MIN (64ull << 10)
#define PLACE_RING_MAX (1ull << 30)
#define PLACE_EXECS_DEFAULT 1024
