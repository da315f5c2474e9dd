/*
 * One connection to the relay. A stranger gets a few seconds and small frames to prove that it
 * holds the key, unless the keeper has handed it over; then it is the session and its requests are
 * served, until it ends, breaks a rule, falls silent or is replaced by one with a higher epoch.
 * Execs are not touched by the end of a session.
 */
#pragma once

#include "relay/relay.h"
#include "wire/conn.h"

struct file_stream;
struct file_tree;

enum session_step { SESSION_HELLO, SESSION_PROOF, SESSION_OPEN };

struct session {
	struct relay *relay;
	struct session *next; /* among the pending */
	struct conn conn;
	struct watch watch;
	struct timer timer;  /* hello deadline, then ping and silence */
	struct timer end;    /* closing waits for a moment when nobody holds the session */
	struct timer linger; /* armed while what is to be said can wait for more */
	enum session_step step;
	bool handed; /* it came from the keeper: the hello needs no proof */
	struct hello hello;
	uint32_t highest_stream;
	int64_t heard_ms;
	size_t lingering; /* how much of it waits */
	bool pinged;
	bool broken; /* to be closed; nothing is read or sent any more */
	struct file_stream *files;
	struct file_tree *trees;
};

/* Answers may pile up to this before no more requests are read, and no more output is added. */
#define SESSION_BACKLOG (256u << 10)

int session_listen(struct relay *relay, struct error *err);
/* A connection that came with the config. */
void session_take(struct relay *relay, int fd);
void session_send(struct session *s, uint32_t stream, enum wire_type type, const void *msg);
void session_done(struct session *s, uint32_t stream);
/* ERROR on one stream: the request failed, the session goes on. */
void session_refuse(struct session *s, uint32_t stream, enum wire_error_code code, int errnum,
		    const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* ERROR on stream 0 and the end of the session. */
void session_reject(struct session *s, enum wire_error_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
bool session_has_room(const struct session *s);
/* Sends what the socket takes now; the rest follows by itself. */
void session_flush(struct session *s);
/*
 * What was said so far may wait a moment for what comes next: most commands end as soon as they
 * have begun, and then one message tells both.
 */
void session_linger(struct session *s);
/* Fills the room in the connection with waiting output and file content, fairly. */
void session_pump(struct session *s);
void session_close_all(struct relay *relay);

/* pause.c: freezes or thaws every exec. */
void pause_serve(struct session *s, const struct wire_message *m);

/* request.c: one decoded message of an open session. */
void request_serve(struct session *s, const struct wire_message *m);
void request_data(struct session *s, const struct frame *frame);
