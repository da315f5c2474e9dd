/*
 * Messages: what server, relay and keeper say to each other inside frames. This page is the
 * protocol.
 *
 * STREAMS. The server opens a stream by sending a request on a number above every number it used
 * before on this connection; stream 0 is the connection itself (hello, ping, errors). The answer
 * comes on the same stream: the message named in the table, or ERROR. DATA, CREDIT, EXEC_ACK and
 * RESET for a stream that has ended are ignored, because they may have crossed its end on the way;
 * for a stream never opened they are a protocol error. One connection has at most one holder of a
 * stream number.
 *
 * FRAME TYPES. WIRE_DATA and WIRE_OUTPUT carry raw bytes, every other type is a message of the
 * table WIRE_MESSAGES with a payload of fields:
 *
 *     u8 id | u8 kind (bit 7: may be skipped) | u32 length | value
 *
 * Numbers are little-endian of fixed size; a string carries its closing NUL and no other; a
 * repeated field is sent once per value. A message type not in the table, a field twice, a required
 * field missing, a value outside its bound: protocol error. An unknown field is skipped only when
 * its sender set bit 7; that is how version N adds to what N-1 still understands. Flags of a
 * message frame are 0.
 *
 *   DATA    flags WIRE_END: nothing follows in this direction. Server to relay: standard input of
 *           an exec, content of FILE_WRITE. Relay to server: content of FILE_READ. Both: records
 *           of TREE_*, one stream of bytes that frames cut anywhere.
 *   OUTPUT  relay to server, on an exec's stream. Flags: enum wire_channel. Payload: u64 offset in
 *           the exec's total order, u64 offset within the channel, then the bytes.
 *
 * ERRORS. ERROR on a stream ends that stream only. ERROR on stream 0 is a protocol error or a
 * refusal: the sender closes after it. Whoever sees the other side break a rule sends it, if the
 * other side still reads, and closes.
 *
 * CREDIT. Bytes of DATA and OUTPUT (without OUTPUT's 16 bytes of offsets) may only be sent against
 * credit on their stream; sending more is a protocol error. Standard input starts with the
 * stdin_credit of EXEC_STARTED, FILE_WRITE with WIRE_WRITE_CREDIT and TREE_* with WIRE_TREE_CREDIT
 * at once; all are topped up by CREDIT. Output, FILE_READ and the answers of TREE_* start with the
 * `credit` of the request. Credit never exceeds WIRE_CREDIT_MAX on a stream. Messages need no
 * credit: each is the bounded answer to a request, and a relay stops reading requests while its
 * answers are not taken.
 *
 * PING. The server sends PING on stream 0 when it heard nothing for WIRE_PING_MS while streams are
 * open, for WIRE_IDLE_MS while none is, and sooner where the place's absence TTL needs it; the
 * relay only when it heard nothing for WIRE_RELAY_PING_MS, which a server that is there never lets
 * happen. The other side answers PONG at once. Nothing heard for WIRE_ANSWER_MS after a PING: the
 * connection is dead and is closed. Any frame of an authenticated server refreshes the place's
 * absence deadline.
 *
 * HELLO. See wire/hello.h. HELLO, CHALLENGE, PROOF, WELCOME on stream 0, within WIRE_HELLO_MS,
 * frames of at most WIRE_HELLO_PAYLOAD bytes. The relay refuses an epoch lower than the highest one
 * that ever proved itself (stale_epoch); an equal one while that connection is still open (busy); a
 * higher one replaces the open connection, which first gets ERROR replaced on stream 0.
 *
 * HANDED OVER. With PLACE_MAKE handed=1 comes a descriptor (SCM_RIGHTS, with the first byte of its
 * frame): one end of a pair of sockets, in which the server has said HELLO. The keeper gives it to
 * the relay along with RELAY_CONFIG, if it is this request that has the relay made, and closes it
 * if not. Who has it has it from the keeper, so nothing is to be proven: the relay looks at HELLO
 * as ever and answers WELCOME. Requests may follow HELLO at once. Only to keepers with
 * WIRE_KEEPER_HANDS; where the descriptor gets lost on the way the server connects.
 *
 * AN EXEC'S LIFE. EXEC_START with a new id starts it; with a known id it only attaches
 * (existing=1), so it may be repeated after a lost answer. It runs until its main process has ended
 * and its output pipes are at their end, or WIRE_GRACE_MS after the main process has ended; what is
 * left of its tree is then killed. EXEC_EXIT follows all output, after the exit was written to the
 * spool's journal. The relay keeps the exec, its unacknowledged output and its exit until
 * EXEC_FORGET, and with them its note: bytes of the server's own by which a later server knows
 * what the command is. The relay does not look into them. noted=1 of EXEC_STARTED says that they
 * are kept; a relay that does not know the field ignores the note.
 *
 * ENDING AN EXEC. A deadline and EXEC_KILL send SIGTERM (and SIGCONT, for what is stopped) to every
 * process of the tree, and SIGKILL to what is left of it after the grace; the exit's reason is
 * theirs however the main process then ended. Repeating EXEC_KILL changes nothing, since it is said
 * again after every lost connection; at_once=1 cuts the grace short. EXEC_KILL_ALL leaves none. A
 * relay that does not know at_once kills at once.
 *
 * PAUSING. PLACE_PAUSE paused=1 freezes every exec: nothing of its tree runs until paused=0. New
 * ones are refused (paused); files, attaching, and output that was printed go on. Deadlines go on
 * too, and SIGKILL ends what is frozen; other signals are heard after the pause, so whatever ends
 * an exec in order waits for its grace. Only to relays with WIRE_FEATURE_PAUSE: the others close.
 *
 * OUTPUT AND RESUME. Total offsets count payload bytes of all channels in arrival order. The server
 * acknowledges (EXEC_ACK) what it has stored: everything below is freed. A full ring stops reading
 * from the process (EXEC_STALLED stalled=1, later 0). A new connection lists (EXEC_LIST) and
 * attaches (EXEC_ATTACH) with the first offset it lacks; an offset above the end is ERROR
 * bad_offset, one below what is kept starts with EXEC_TRUNCATED, which stands in for the bytes that
 * are gone. An exec has one attachment: a second one ends the first with ERROR replaced on its
 * stream. Standard input resumes at `stdin_offset` of EXEC_STARTED: bytes from there on were lost
 * with the connection and are sent again.
 *
 * RESERVED. Numbers that meant something in version 1 and that no server ever sent. They are not
 * used again, since a relay or keeper of the revision before would misunderstand them. To a relay or
 * keeper of today they are unknown: a field is skipped if its sender marked it so, and refused if
 * not; a message is refused.
 *
 *   EXEC_START   12 rlimits, 13 ring_bytes, 14 overflow, 15 merge, 18 grace_ms
 *   EXEC_KILL    3 grace_ms
 *   FILE_STAT    2 follow
 *   PLACE_MAKE   6 uid, 7 gid, 8 run_as, 10 ring_max, 11 max_execs, 12 make_root, 13 confine
 *   messages     0x1c PLACE_END, 0x68 KEEPER_SHUTDOWN
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/error.h"
#include "wire/frame.h"

#define WIRE_VERSION 1
#define WIRE_MIN_VERSION 1

#define WIRE_END 0x01 /* flag of DATA */

#define WIRE_STDIN_CREDIT (64u << 10)
#define WIRE_WRITE_CREDIT (256u << 10)
#define WIRE_TREE_CREDIT (4u << 20)
#define WIRE_CREDIT_MAX (16u << 20)
#define WIRE_OUTPUT_OVERHEAD 16
#define WIRE_PING_MS 30000
#define WIRE_IDLE_MS 300000
#define WIRE_RELAY_PING_MS 360000
#define WIRE_ANSWER_MS 60000
#define WIRE_HELLO_MS 5000
#define WIRE_HELLO_PAYLOAD 1024u
#define WIRE_GRACE_MS 500
#define WIRE_LEAVE_MS 5000 /* between SIGTERM and SIGKILL */
#define WIRE_SOFT_MEMORY 1u
#define WIRE_SOFT_PIDS 2u
#define WIRE_ID_SIZE 16 /* binary exec id */
#define WIRE_NOTE_MAX 4096

/* Feature bits of WELCOME: what this relay can do. Bits a server does not know are ignored. */
#define WIRE_FEATURE_EXEC (1u << 0)
#define WIRE_FEATURE_PTY (1u << 1)
#define WIRE_FEATURE_FILES (1u << 2)
#define WIRE_FEATURE_TREE_CGROUP (1u << 3) /* tree kill by cgroup: nothing can leave */
#define WIRE_FEATURE_TREE_SHIM (1u << 4)   /* tree kill by subreaper: see relay/procs.h */
#define WIRE_FEATURE_USERS (1u << 5)       /* may run an exec as another user */
#define WIRE_FEATURE_TREES (1u << 6)       /* TREE_SCAN, TREE_HASH, TREE_PUT, TREE_GET */
#define WIRE_FEATURE_PAUSE (1u << 7)       /* PLACE_PAUSE: execs can be frozen */

/* Feature bits of KEEPER_WELCOME. */
#define WIRE_KEEPER_HANDS (1u << 0)  /* it hands connections over */
#define WIRE_KEEPER_BOUNDS (1u << 1) /* it goes by `within` of SANDBOX */

enum wire_channel { WIRE_STDOUT, WIRE_STDERR, WIRE_PTY, WIRE_CHANNELS };
enum wire_stdin { WIRE_STDIN_NONE, WIRE_STDIN_STREAM };
enum wire_target { WIRE_TO_PROCESS, WIRE_TO_GROUP, WIRE_TO_TREE };

/* Why an exec ended. */
enum wire_reason {
	REASON_NONE,
	REASON_EXITED,
	REASON_SIGNALLED,
	REASON_TIMEOUT,
	REASON_OOM,
	REASON_CANCELLED,
	REASON_LEASE_LOST,
};

/* draining: the main process has ended, output is still to be read or the tree to be emptied. */
enum wire_exec_phase {
	WIRE_EXEC_RUNNING,
	WIRE_EXEC_DRAINING,
	WIRE_EXEC_EXITED,
};

/* alive: its relay runs. dead: the relay ended without being asked; nothing of it runs any more. */
enum wire_place_phase {
	PLACE_ALIVE,
	PLACE_DEAD,
	PLACE_ENDING,
};

enum wire_place_kind {
	PLACE_LOCAL,  /* the host's own file tree */
	PLACE_DIR,    /* one directory of the host */
	PLACE_NATIVE, /* a sandbox of its own: SANDBOX says which */
};

#define WIRE_FILE_TYPES(X)                                                                         \
	X(FILE_OTHER, "other")                                                                     \
	X(FILE_REGULAR, "file")                                                                    \
	X(FILE_DIRECTORY, "directory")                                                             \
	X(FILE_SYMLINK, "symlink")                                                                 \
	X(FILE_FIFO, "fifo")                                                                       \
	X(FILE_SOCKET, "socket")                                                                   \
	X(FILE_CHAR, "char_device")                                                                \
	X(FILE_BLOCK, "block_device")

/* Codes of ERROR, and what each becomes as an error of the server. Numbers are their order: append
 * only. */
#define WIRE_ERRORS(X)                                                                             \
	X(WERR_NONE, "none", ERR_INTERNAL)                                                         \
	X(WERR_PROTOCOL, "protocol", ERR_PROTOCOL)                                                 \
	X(WERR_VERSION, "version", ERR_PROTOCOL)                                                   \
	X(WERR_AUTH, "auth", ERR_UNAUTHENTICATED)                                                  \
	X(WERR_STALE_EPOCH, "stale_epoch", ERR_STALE_GENERATION)                                   \
	X(WERR_REPLACED, "replaced", ERR_CONFLICT)                                                 \
	X(WERR_BUSY, "busy", ERR_UNAVAILABLE)                                                      \
	X(WERR_ENDING, "ending", ERR_LEASE_LOST)                                                   \
	X(WERR_INVALID, "invalid", ERR_BAD_REQUEST)                                                \
	X(WERR_TOO_MANY, "too_many", ERR_TOO_MANY)                                                 \
	X(WERR_NO_EXEC, "no_such_exec", ERR_NOT_FOUND)                                             \
	X(WERR_RUNNING, "exec_running", ERR_CONFLICT)                                              \
	X(WERR_EXITED, "exec_exited", ERR_CONFLICT)                                                \
	X(WERR_BAD_OFFSET, "bad_offset", ERR_BAD_REQUEST)                                          \
	X(WERR_COMMAND_NOT_FOUND, "command_not_found", ERR_COMMAND_NOT_FOUND)                      \
	X(WERR_COMMAND_DENIED, "command_not_executable", ERR_COMMAND_DENIED)                       \
	X(WERR_BAD_CWD, "bad_cwd", ERR_EXEC)                                                       \
	X(WERR_BAD_USER, "bad_user", ERR_EXEC)                                                     \
	X(WERR_START, "start_failed", ERR_EXEC)                                                    \
	X(WERR_BAD_PATH, "bad_path", ERR_BAD_PATH)                                                 \
	X(WERR_NOT_FOUND, "file_not_found", ERR_NOT_FOUND)                                         \
	X(WERR_EXISTS, "file_exists", ERR_CONFLICT)                                                \
	X(WERR_CHANGED, "file_changed", ERR_CONFLICT)                                              \
	X(WERR_DENIED, "file_denied", ERR_FORBIDDEN)                                               \
	X(WERR_FILE_TYPE, "file_type", ERR_UNPROCESSABLE)                                          \
	X(WERR_NOT_EMPTY, "not_empty", ERR_CONFLICT)                                               \
	X(WERR_NO_SPACE, "no_space", ERR_DISK_FULL)                                                \
	X(WERR_IO, "io", ERR_IO)                                                                   \
	X(WERR_NO_PLACE, "no_such_place", ERR_NOT_FOUND)                                           \
	X(WERR_PLACE_EXISTS, "place_exists", ERR_CONFLICT)                                         \
	X(WERR_UNSUPPORTED, "unsupported", ERR_UNPROCESSABLE)                                      \
	X(WERR_TOO_LARGE, "too_large", ERR_TOO_LARGE)                                              \
	X(WERR_PAUSED, "paused", ERR_LEASE_PAUSED)

/*
 * Fields: F(id, kind, name, need, bound). Kinds: U32, U64; STR, BYTES (bound: most bytes); STRV
 * (repeated string; bound: most values); ID16, B32 (that many bytes). For numbers the bound is the
 * largest value. Need: REQ or OPT (absent: 0 or empty). ADDED is OPT and marked as one that may be
 * skipped: it came after version 1, and N-1 lives without it.
 */
#define ANY32 UINT32_MAX
#define ANY64 UINT64_MAX
#define PATH_BOUND 4095
#define WIRE_RULES_MAX (512u << 10)

/* clang-format off */
#define WIRE_FIELDS_ping(F)		F(1, U64, token, REQ, ANY64)
#define WIRE_FIELDS_pong(F)		F(1, U64, token, REQ, ANY64)
#define WIRE_FIELDS_error(F)		F(1, U32, code, REQ, ANY32) \
					F(2, U32, errnum, OPT, ANY32) /* errno behind it, for people */ \
					F(3, STR, message, REQ, 512)
#define WIRE_FIELDS_credit(F)		F(1, U32, bytes, REQ, WIRE_CREDIT_MAX)
#define WIRE_FIELDS_done(F)
#define WIRE_FIELDS_reset(F)

#define WIRE_FIELDS_hello(F)		F(1, U32, version, REQ, ANY32) \
					F(2, U32, min_version, REQ, ANY32) \
					F(3, U64, features, OPT, ANY64) \
					F(4, STR, place_id, REQ, 64) \
					F(5, U64, epoch, REQ, ANY64) \
					F(6, B32, nonce, REQ, 32)
#define WIRE_FIELDS_challenge(F)	F(1, U32, version, REQ, ANY32) /* the one both will speak */ \
					F(2, U64, features, OPT, ANY64) \
					F(3, B32, nonce, REQ, 32) \
					F(4, B32, proof, REQ, 32)
#define WIRE_FIELDS_proof(F)		F(1, B32, proof, REQ, 32)
#define WIRE_FIELDS_welcome(F)		F(1, U64, absence_ms, REQ, ANY64) \
					F(2, U32, pid, REQ, ANY32) /* as the relay sees itself */ \
					F(3, U32, execs, OPT, ANY32) \
					F(4, U32, max_execs, OPT, ANY32) \
					F(5, U64, ring_max, OPT, ANY64) \
					F(6, STR, boot_id, OPT, 64) \
					F(7, U32, version, ADDED, ANY32) /* as in CHALLENGE */ \
					F(8, U64, features, ADDED, ANY64)
#define WIRE_FIELDS_place_pause(F)	F(1, U32, paused, REQ, 1)

#define WIRE_FIELDS_exec_start(F)	F(1, ID16, exec_id, REQ, 16) \
					F(2, STRV, argv, REQ, 8192) \
					F(3, STRV, env, OPT, 8192) /* complete: NAME=value */ \
					F(4, STR, cwd, OPT, PATH_BOUND) /* default: the place's; relative to it */ \
					F(5, STR, user, OPT, 128) /* name, uid or uid:gid */ \
					F(6, U32, stdin_mode, OPT, 1) /* enum wire_stdin; a PTY always streams */ \
					F(7, U32, pty, OPT, 1) \
					F(8, U32, rows, OPT, 65535) \
					F(9, U32, cols, OPT, 65535) \
					F(10, STR, term, OPT, 64) /* TERM unless env has one */ \
					F(11, U64, deadline_ms, OPT, ANY64) /* from the start; 0: none */ \
					F(16, U32, credit, OPT, WIRE_CREDIT_MAX) \
					F(17, U64, from_offset, OPT, ANY64) /* when it exists already */ \
					F(19, BYTES, note, ADDED, WIRE_NOTE_MAX) /* the server's; given back by EXEC_STATE */
#define WIRE_FIELDS_exec_started(F)	F(1, U32, pid, REQ, ANY32) \
					F(2, U32, existing, OPT, 1) \
					F(3, U64, stdin_offset, OPT, ANY64) \
					F(4, U64, end_offset, OPT, ANY64) \
					F(5, U64, kept_offset, OPT, ANY64) /* the oldest byte that is kept */ \
					F(6, U32, stdin_credit, OPT, WIRE_STDIN_CREDIT) \
					F(7, U32, noted, ADDED, 1) /* the relay keeps its note */
#define WIRE_FIELDS_exec_attach(F)	F(1, ID16, exec_id, REQ, 16) \
					F(2, U64, from_offset, REQ, ANY64) \
					F(3, U32, credit, OPT, WIRE_CREDIT_MAX)
#define WIRE_FIELDS_exec_ack(F)		F(1, U64, offset, REQ, ANY64)
#define WIRE_FIELDS_exec_signal(F)	F(1, ID16, exec_id, REQ, 16) \
					F(2, U32, signal, REQ, 64) \
					F(3, U32, target, OPT, 2) /* enum wire_target */
#define WIRE_FIELDS_exec_resize(F)	F(1, ID16, exec_id, REQ, 16) \
					F(2, U32, rows, REQ, 65535) \
					F(3, U32, cols, REQ, 65535)
#define WIRE_FIELDS_exec_kill(F)	F(1, ID16, exec_id, REQ, 16) \
					F(2, U32, reason, REQ, 6) /* what EXEC_EXIT will say */ \
					F(4, U32, at_once, ADDED, 1)
#define WIRE_FIELDS_exec_kill_all(F)	F(1, U32, reason, REQ, 6)
#define WIRE_FIELDS_exec_list(F)
#define WIRE_FIELDS_exec_state(F)	F(1, ID16, exec_id, REQ, 16) \
					F(2, U32, state, REQ, 2) \
					F(3, U32, pid, OPT, ANY32) \
					F(4, U32, pty, OPT, 1) \
					F(5, U32, stalled, OPT, 1) \
					F(6, U64, end_offset, OPT, ANY64) \
					F(7, U64, acked_offset, OPT, ANY64) \
					F(8, U64, kept_offset, OPT, ANY64) \
					F(9, U64, stdout_offset, OPT, ANY64) /* or the PTY's */ \
					F(10, U64, stderr_offset, OPT, ANY64) \
					F(11, U64, stdin_offset, OPT, ANY64) \
					F(12, U64, started_ms, OPT, ANY64) /* civil time of the place */ \
					F(13, U32, exit_code, OPT, 255) \
					F(14, U32, signal, OPT, 64) \
					F(15, U32, reason, OPT, 6) \
					F(16, U64, wall_us, OPT, ANY64) \
					F(17, U64, user_us, OPT, ANY64) \
					F(18, U64, sys_us, OPT, ANY64) \
					F(19, U64, max_rss_kb, OPT, ANY64) \
					F(20, BYTES, note, ADDED, WIRE_NOTE_MAX) /* of EXEC_START */
#define WIRE_FIELDS_exec_exit(F)	F(1, U32, exit_code, OPT, 255) /* when signal is 0 */ \
					F(2, U32, signal, OPT, 64) \
					F(3, U32, reason, REQ, 6) \
					F(4, U64, end_offset, OPT, ANY64) \
					F(5, U64, stdout_offset, OPT, ANY64) \
					F(6, U64, stderr_offset, OPT, ANY64) \
					F(7, U64, wall_us, OPT, ANY64) \
					F(8, U64, user_us, OPT, ANY64) /* main process and what it waited for */ \
					F(9, U64, sys_us, OPT, ANY64) \
					F(10, U64, max_rss_kb, OPT, ANY64)
#define WIRE_FIELDS_exec_stalled(F)	F(1, U32, stalled, REQ, 1)
#define WIRE_FIELDS_exec_truncated(F)	F(1, U64, from_offset, REQ, ANY64) \
					F(2, U64, to_offset, REQ, ANY64)
#define WIRE_FIELDS_exec_stdin_closed(F)
#define WIRE_FIELDS_exec_forget(F)	F(1, ID16, exec_id, REQ, 16)
#define WIRE_FIELDS_exec_ring(F)	F(1, ID16, exec_id, REQ, 16) \
					F(2, U64, size, REQ, ANY64) /* a byte is at its offset modulo this */ \
					F(3, BYTES, segments, REQ, 196608) /* RELAY_SEGMENT_SIZE each, in order */

#define WIRE_FIELDS_file_stat(F)	F(1, STR, path, REQ, PATH_BOUND)
#define WIRE_FIELDS_file_info(F)	F(1, STR, name, OPT, 255) /* only in listings */ \
					F(2, U32, type, REQ, 7) \
					F(3, U32, mode, REQ, 07777) \
					F(4, U64, size, REQ, ANY64) \
					F(5, U64, mtime_ns, REQ, ANY64) \
					F(6, U64, ctime_ns, OPT, ANY64) \
					F(7, U32, uid, OPT, ANY32) \
					F(8, U32, gid, OPT, ANY32) \
					F(9, U64, inode, OPT, ANY64) \
					F(10, STR, target, OPT, PATH_BOUND) /* of a symlink */ \
					F(11, STR, tag, OPT, 80) /* for if_match; changes with every write */
#define WIRE_FIELDS_file_list(F)	F(1, STR, path, REQ, PATH_BOUND) \
					F(2, U64, cursor, OPT, ANY64) /* from FILE_PAGE; 0: start */ \
					F(3, U32, limit, OPT, 1000) /* 0: 1000 */
#define WIRE_FIELDS_file_page(F)	F(1, U64, cursor, OPT, ANY64) /* 0: that was all */
#define WIRE_FIELDS_file_read(F)	F(1, STR, path, REQ, PATH_BOUND) \
					F(2, U64, offset, OPT, ANY64) \
					F(3, U64, length, OPT, ANY64) /* 0: to the end */ \
					F(4, U32, credit, OPT, WIRE_CREDIT_MAX)
#define WIRE_FIELDS_file_write(F)	F(1, STR, path, REQ, PATH_BOUND) \
					F(2, U32, mode, OPT, 0777) /* 0: the old file's, else 0644 */ \
					F(3, U32, no_clobber, OPT, 1) \
					F(4, STR, if_match, OPT, 80) /* tag the old file must have */
#define WIRE_FIELDS_file_mkdir(F)	F(1, STR, path, REQ, PATH_BOUND) \
					F(2, U32, mode, OPT, 07777) /* 0: 0755 */ \
					F(3, U32, parents, OPT, 1)
#define WIRE_FIELDS_file_rename(F)	F(1, STR, from, REQ, PATH_BOUND) \
					F(2, STR, to, REQ, PATH_BOUND) \
					F(3, U32, no_replace, OPT, 1)
#define WIRE_FIELDS_file_remove(F)	F(1, STR, path, REQ, PATH_BOUND) \
					F(2, U32, recursive, OPT, 1)
#define WIRE_FIELDS_file_chmod(F)	F(1, STR, path, REQ, PATH_BOUND) \
					F(2, U32, mode, REQ, 07777)

#define WIRE_FIELDS_tree_scan(F)	F(1, STR, root, REQ, PATH_BOUND) \
					F(2, U32, credit, REQ, WIRE_CREDIT_MAX) \
					F(3, BYTES, rules, OPT, WIRE_RULES_MAX) /* ignore rules that count everywhere */ \
					F(4, U32, no_rules, OPT, 1) /* those in the tree do not count */ \
					F(5, U32, skip_git, OPT, 1) \
					F(6, U64, max_entries, REQ, ANY64)
#define WIRE_FIELDS_tree_hash(F)	F(1, STR, root, REQ, PATH_BOUND) \
					F(2, U32, credit, REQ, WIRE_CREDIT_MAX)
#define WIRE_FIELDS_tree_put(F)		F(1, STR, root, REQ, PATH_BOUND) \
					F(2, U32, credit, REQ, WIRE_CREDIT_MAX) \
					F(3, U32, make_root, OPT, 1) /* with its parents */ \
					F(4, U32, only_ours, OPT, 1) /* it must be empty or made by a put */
#define WIRE_FIELDS_tree_get(F)		F(1, STR, root, REQ, PATH_BOUND) \
					F(2, U32, credit, REQ, WIRE_CREDIT_MAX) \
					F(3, U64, max_file, OPT, ANY64) /* a larger file is left out; 0: none is */

#define WIRE_FIELDS_keeper_hello(F)	F(1, U32, version, REQ, ANY32) \
					F(2, U32, min_version, REQ, ANY32) \
					F(3, U64, features, OPT, ANY64)
#define WIRE_FIELDS_keeper_welcome(F)	F(1, U32, version, REQ, ANY32) \
					F(2, U64, features, OPT, ANY64) \
					F(3, U32, pid, REQ, ANY32) \
					F(4, U32, places, OPT, ANY32) \
					F(5, STR, boot_id, OPT, 64) \
					F(6, STR, program_version, OPT, 64)
#define WIRE_FIELDS_place_make(F)	F(1, STR, place_id, REQ, 64) \
					F(2, U32, kind, REQ, 2) \
					F(3, B32, key, REQ, 32) \
					F(4, STR, root, OPT, PATH_BOUND) /* dir: absolute; empty: made inside */ \
					F(5, STR, cwd, OPT, PATH_BOUND) /* default: the root */ \
					F(9, U64, absence_ms, REQ, ANY64) /* 1 s .. 7 days */ \
					F(14, BYTES, sandbox, OPT, 32768) /* native: one SANDBOX frame */ \
					F(15, STR, label, OPT, 512) /* the server's name for it; told in PLACE_STATE */ \
					F(16, U32, pool, OPT, 64) /* native: so many like it are kept ready */ \
					F(17, U32, handed, ADDED, 1) /* a descriptor comes with it: the relay's first connection */
#define WIRE_FIELDS_place_state(F)	F(1, STR, place_id, REQ, 64) \
					F(2, U32, state, REQ, 2) \
					F(3, STR, socket, OPT, PATH_BOUND) \
					F(4, U32, pid, OPT, ANY32) \
					F(5, U64, start_time, OPT, ANY64) /* clock ticks, /proc/PID/stat field 22 */ \
					F(6, U32, kind, OPT, 2) \
					F(7, STR, root, OPT, PATH_BOUND) \
					F(8, STR, cgroup, OPT, PATH_BOUND) \
					F(9, STR, ended, OPT, 64) /* why it is dead */ \
					F(10, U64, walls, OPT, ANY64) /* wire/walls.h: those that stand */ \
					F(11, STR, label, OPT, 512) \
					F(12, U32, pool, OPT, 2) /* nobody's yet: 1 being prepared, 2 ready */ \
					F(13, STR, upper, ADDED, PATH_BOUND) /* where writes to an overlaid workspace are */ \
					F(14, U32, handed, ADDED, 1) /* to PLACE_MAKE: the relay gets the connection */
#define WIRE_FIELDS_place_list(F)
#define WIRE_FIELDS_place_destroy(F)	F(1, STR, place_id, REQ, 64) \
					F(2, U32, processes_only, ADDED, 1) /* files and exits stay; DONE when it is begun */
#define WIRE_FIELDS_keeper_status(F)
#define WIRE_FIELDS_keeper_state(F)	F(1, U32, alive, OPT, ANY32) \
					F(2, U32, dead, OPT, ANY32) \
					F(3, U32, clients, OPT, ANY32) \
					F(4, U64, uptime_ms, OPT, ANY64) \
					F(5, STR, cgroup, OPT, PATH_BOUND) /* empty: none can be used */
#define WIRE_FIELDS_recipe(F)		F(1, STR, place_id, REQ, 64) \
					F(2, U32, kind, REQ, 2) \
					F(3, STR, root, OPT, PATH_BOUND) \
					F(4, U32, made_root, OPT, 1) \
					F(5, STR, cgroup, OPT, PATH_BOUND) \
					F(6, STR, boot_id, REQ, 64) \
					F(7, U64, absence_ms, REQ, ANY64) \
					F(8, STR, tag, REQ, 32) /* argv[2] of the relay: this one and no other */ \
					F(9, STR, label, OPT, 512) \
					F(10, U32, range, OPT, ANY32) /* 1 + number of its uid range; 0: none */ \
					F(11, STRV, limit_cgroups, OPT, 8) /* v1 cgroups that limit it */ \
					F(12, STR, store, OPT, 64) /* where its files are, if they outlive it */ \
					F(13, U64, walls, OPT, ANY64) \
					F(14, U32, pool, OPT, 1) /* nobody was told of it */ \
					F(15, U32, overlaid, ADDED, 1) /* its workspace is a layer over the host's */
/*
 * A sandbox, as the server wants it. The keeper checks all of it again: where paths really lead
 * against `within`, walls against what it could build. A server that sends no `within` started its
 * keeper with a list of directories; that counts then.
 */
#define WIRE_FIELDS_sandbox(F)		F(1, STR, root, OPT, PATH_BOUND) /* an unpacked root; empty: the host's programs */ \
					F(2, U32, tmpfs, OPT, 1) /* what is written goes to memory, not to disk */ \
					F(3, U32, host_network, OPT, 1) \
					F(4, U64, memory_bytes, OPT, ANY64) /* limits: 0 is none */ \
					F(5, U32, pids, OPT, 4194304) \
					F(6, U32, cpu_percent, OPT, 102400) /* of one processor */ \
					F(7, U64, disk_bytes, OPT, ANY64) /* only with tmpfs */ \
					F(8, U32, open_files, OPT, 1048576) \
					F(9, STRV, mounts, OPT, 96) /* threes: "ro" or "rw", source, target */ \
					F(10, STR, user, OPT, 32) /* "root", or the name of the one user */ \
					F(11, BYTES, seccomp, OPT, 16384) /* a BPF program, for the payload; all of it */ \
					F(12, U64, require, OPT, ANY64) /* walls without which it must not be made */ \
					F(13, STR, store, OPT, 64) /* files are kept under this name */ \
					F(14, STR, workspace, OPT, PATH_BOUND) /* directory of the host for /workspace; empty: its own */ \
					F(15, U32, overlay, OPT, 1) /* under a layer of the place's own */ \
					F(16, STR, masks, OPT, PATH_BOUND) /* with overlay: file of wire/hidden_paths.h */ \
					F(17, BYTES, seccomp_base, ADDED, 16384) /* seccomp in two parts: what stands from birth on, */ \
					F(18, BYTES, seccomp_exec, ADDED, 16384) /* and what every exec adds to it */ \
					F(19, STRV, closed, ADDED, 8) /* directories of the host that it must not see */ \
					F(20, U32, sockets, ADDED, 1) /* unix sockets in mounts and a bound workspace stay in reach */ \
					F(21, STRV, within, ADDED, 33) /* the directory that the root, then that each source, must be below */ \
					F(22, U32, soft_limits, ADDED, 3) /* WIRE_SOFT_*: nobody asked for these; without a way they fall away */
#define WIRE_FIELDS_store_remove(F)	F(1, STR, store, REQ, 64)

#define WIRE_FIELDS_relay_config(F)	F(1, STR, place_id, REQ, 64) \
					F(2, B32, key, REQ, 32) \
					F(3, U64, absence_ms, REQ, ANY64) \
					F(4, U32, whole_host, OPT, 1) /* root is "/": paths are absolute */ \
					F(5, STR, cwd, REQ, PATH_BOUND) \
					F(6, U32, uid, OPT, ANY32) \
					F(7, U32, gid, OPT, ANY32) \
					F(8, U32, run_as, OPT, 1) \
					F(9, U64, ring_max, REQ, ANY64) \
					F(10, U32, max_execs, REQ, 65536) \
					F(11, U32, confine, OPT, 1) \
					F(12, U32, has_cgroup, OPT, 1) \
					F(13, BYTES, seccomp, OPT, 16384) /* for every exec; needs confine */ \
					F(14, U32, open_files, OPT, 1048576) /* 0: as the relay has it */ \
					F(15, U32, limit_fds, OPT, 3) /* how many RELAY_FD_LIMIT were given */ \
					F(16, U64, walls, OPT, ANY64) /* told apart in errors: wire/walls.h */

/* M(NAME, name, frame type): the sender and the answer in the comment. R relay, S server, K keeper. */
#define WIRE_MESSAGES(M) \
	M(PING, ping, 0x10)			/* any: PONG */ \
	M(PONG, pong, 0x11) \
	M(ERROR, error, 0x12)			/* any */ \
	M(CREDIT, credit, 0x13)			/* receiver of the bytes */ \
	M(DONE, done, 0x14)			/* success of a request without a result */ \
	M(RESET, reset, 0x15)			/* S: ends FILE_READ, FILE_WRITE, TREE_*, or detaches an exec */ \
	M(HELLO, hello, 0x18)			/* S: CHALLENGE */ \
	M(CHALLENGE, challenge, 0x19)		/* R */ \
	M(PROOF, proof, 0x1a)			/* S: WELCOME */ \
	M(WELCOME, welcome, 0x1b)		/* R */ \
	M(PLACE_PAUSE, place_pause, 0x1d)	/* S: DONE when no exec runs any more, or all do again */ \
	M(EXEC_START, exec_start, 0x20)		/* S: EXEC_STARTED, then OUTPUT .. EXEC_EXIT */ \
	M(EXEC_STARTED, exec_started, 0x21)	/* R */ \
	M(EXEC_ATTACH, exec_attach, 0x22)	/* S: EXEC_STARTED existing=1, then as EXEC_START */ \
	M(EXEC_ACK, exec_ack, 0x23)		/* S, on the exec's stream: no answer */ \
	M(EXEC_SIGNAL, exec_signal, 0x24)	/* S: DONE */ \
	M(EXEC_RESIZE, exec_resize, 0x25)	/* S: DONE */ \
	M(EXEC_KILL, exec_kill, 0x26)		/* S: DONE when killing has begun; EXEC_EXIT tells the end */ \
	M(EXEC_KILL_ALL, exec_kill_all, 0x27)	/* S: DONE; every exec of the place */ \
	M(EXEC_LIST, exec_list, 0x28)		/* S: EXEC_STATE per exec, then DONE */ \
	M(EXEC_STATE, exec_state, 0x29)		/* R; also the record of the spool's journal */ \
	M(EXEC_FORGET, exec_forget, 0x2a)	/* S: DONE; exec_running while it runs */ \
	M(EXEC_EXIT, exec_exit, 0x2b)		/* R, last on the exec's stream, which it ends */ \
	M(EXEC_STALLED, exec_stalled, 0x2c)	/* R */ \
	M(EXEC_TRUNCATED, exec_truncated, 0x2d)	/* R */ \
	M(EXEC_STDIN_CLOSED, exec_stdin_closed, 0x2e) /* R: nobody reads it; more is discarded */ \
	M(EXEC_RING, exec_ring, 0x2f)		/* no traffic: behind EXEC_STATE in the journal */ \
	M(FILE_STAT, file_stat, 0x40)		/* S: FILE_INFO */ \
	M(FILE_INFO, file_info, 0x41)		/* R */ \
	M(FILE_LIST, file_list, 0x42)		/* S: FILE_INFO per entry, then FILE_PAGE */ \
	M(FILE_PAGE, file_page, 0x43)		/* R */ \
	M(FILE_READ, file_read, 0x44)		/* S: FILE_INFO, then DATA .. END */ \
	M(FILE_WRITE, file_write, 0x45)		/* S, then DATA .. END: FILE_INFO when it is in place */ \
	M(FILE_MKDIR, file_mkdir, 0x46)		/* S: DONE */ \
	M(FILE_RENAME, file_rename, 0x47)	/* S: DONE */ \
	M(FILE_REMOVE, file_remove, 0x48)	/* S: DONE */ \
	M(FILE_CHMOD, file_chmod, 0x49)		/* S: DONE */ \
	M(TREE_SCAN, tree_scan, 0x4a)		/* S; these four: DATA of records both ways, see wire/tree_record.h */ \
	M(TREE_HASH, tree_hash, 0x4b)		/* S */ \
	M(TREE_PUT, tree_put, 0x4c)		/* S */ \
	M(TREE_GET, tree_get, 0x4d)		/* S */ \
	M(KEEPER_HELLO, keeper_hello, 0x60)	/* S to K: KEEPER_WELCOME. First on the connection */ \
	M(KEEPER_WELCOME, keeper_welcome, 0x61)	/* K */ \
	M(PLACE_MAKE, place_make, 0x62)		/* S to K: PLACE_STATE; same id again: the same place */ \
	M(PLACE_STATE, place_state, 0x63)	/* K */ \
	M(PLACE_LIST, place_list, 0x64)		/* S to K: PLACE_STATE per place, then DONE */ \
	M(PLACE_DESTROY, place_destroy, 0x65)	/* S to K: DONE when nothing runs and its name is free */ \
	M(KEEPER_STATUS, keeper_status, 0x66)	/* S to K: KEEPER_STATE */ \
	M(KEEPER_STATE, keeper_state, 0x67)	/* K */ \
	M(STORE_REMOVE, store_remove, 0x69)	/* S to K: DONE when its name is free; busy while a place uses it */ \
	M(SANDBOX, sandbox, 0x6a)		/* inside PLACE_MAKE */ \
	M(RECIPE, recipe, 0x70)			/* no traffic: the keeper's file */ \
	M(RELAY_CONFIG, relay_config, 0x71)	/* keeper to relay, in the start pipe: wire/place.h */
/* clang-format on */

struct wire_bytes {
	const uint8_t *data;
	uint32_t len;
};

/* NULL-terminated, so that it can be handed to execve. */
struct wire_strv {
	const char *const *v;
	uint32_t count;
};

#define WIRE_DECLARE_U32(name) uint32_t name;
#define WIRE_DECLARE_U64(name) uint64_t name;
#define WIRE_DECLARE_STR(name) const char *name; /* NULL: absent */
#define WIRE_DECLARE_BYTES(name) struct wire_bytes name;
#define WIRE_DECLARE_STRV(name) struct wire_strv name;
#define WIRE_DECLARE_ID16(name) uint8_t name[16];
#define WIRE_DECLARE_B32(name) uint8_t name[32];
#define WIRE_DECLARE(id, kind, name, need, bound) WIRE_DECLARE_##kind(name)

#define M(NAME, name, type)                                                                        \
	struct wire_##name {                                                                       \
		WIRE_FIELDS_##name(WIRE_DECLARE)                                                   \
	};
WIRE_MESSAGES(M)
#undef M

enum wire_type {
	WIRE_DATA = 1,
	WIRE_OUTPUT = 2,
#define M(NAME, name, type) WIRE_##NAME = type,
	WIRE_MESSAGES(M)
#undef M
};

#define X(name, text) name,
enum wire_file_type { WIRE_FILE_TYPES(X) };
#undef X
#define X(name, text, code) name,
enum wire_error_code { WIRE_ERRORS(X) WERR_COUNT };
#undef X

/* A decoded message. Strings and bytes point into the payload it was decoded from. */
#define WIRE_VECTORS_MAX 3
struct wire_message {
	enum wire_type type;
	uint32_t stream;
	union {
#define M(NAME, name, type) struct wire_##name name;
		WIRE_MESSAGES(M)
#undef M
	};
	const char **vectors[WIRE_VECTORS_MAX]; /* owned */
};

/*
 * Decodes the payload of a message frame. -1 with ERR_PROTOCOL for anything the table does not
 * allow. The message is empty after a failure and is to be cleared after use.
 */
int wire_decode(const struct frame *frame, struct wire_message *out, struct error *err);
void wire_message_clear(struct wire_message *m);
#define _cleanup_wire_message_ _cleanup_(wire_message_clear)

/*
 * Appends one frame with the message of that type (`msg` is its struct). -1 with ERR_TOO_LARGE when
 * it does not fit a frame or a bound of the table; `out` is then unchanged.
 */
int wire_encode(struct buf *out, uint32_t stream, enum wire_type type, const void *msg,
		struct error *err);
/* Appends ERROR; the message is cut to its bound. */
void wire_encode_error(struct buf *out, uint32_t stream, enum wire_error_code code, int errnum,
		       const char *fmt, ...) __attribute__((format(printf, 5, 6)));

const char *wire_type_name(unsigned type); /* NULL when unknown */
const char *wire_error_name(uint32_t code);
/* The server's own code for it. */
enum error_code wire_error_meaning(uint32_t code);
const char *wire_file_type_name(uint32_t type);
