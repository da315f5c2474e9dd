#include "link/handshake.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "base/fd.h"
#include "link/link.h"
#include "wire/conn.h"

/* The descriptor stays the caller's. */
static void conn_let_go(struct conn *conn)
{
	conn->fd = -1;
	conn_close(conn);
}

void handshake_clear(struct handshake *g)
{
	buf_free(&g->early);
}

/* In a 0700 directory of ours only we or root can listen; this also notices if that was broken. */
static int check_listener(int fd, bool of_sandbox, pid_t *pid, struct error *err)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return error_errno(err, errno, "identifying the process that listens");
	/* The relay of a sandbox is root of its namespace only: its uid here is one of a range, and
	 * what it must know to be believed is the key. */
	if (!of_sandbox && peer.uid != geteuid() && peer.uid != 0)
		return error_set(err, ERR_FORBIDDEN, "uid %u listens where only we should",
				 (unsigned)peer.uid);
	*pid = peer.pid;
	return 0;
}

int handshake_connect(int dirfd, const char *path, bool of_sandbox, int *out, pid_t *pid,
		      struct error *err)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int len = snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", dirfd,
			   path);

	if (fd < 0)
		return error_errno(err, errno, "making a socket");
	if (len < 0 || (size_t)len >= sizeof(address.sun_path))
		return error_set(err, ERR_BAD_PATH, "%s is too long for a socket", path);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return error_errno(err, errno, "connecting to %s", path);
	if (check_listener(fd, of_sandbox, pid, err) < 0)
		return -1;
	*out = steal_fd(&fd);
	return 0;
}

static int wait_for(int fd, short events, int64_t deadline, struct error *err)
{
	struct pollfd p = { .fd = fd, .events = events };

	for (;;) {
		int64_t left = deadline - boottime_ms();
		int r;

		if (left <= 0)
			return error_set(err, ERR_TIMEOUT, "no greeting in time");
		r = poll(&p, 1, (int)MIN_OF(left, (int64_t)INT_MAX));
		if (r > 0)
			return 0;
		if (r < 0 && errno != EINTR)
			return error_errno(err, errno, "waiting for a greeting");
	}
}

static int say(struct conn *conn, int64_t deadline, struct error *err)
{
	for (;;) {
		if (conn_flush(conn) < 0)
			return error_set(err, ERR_UNAVAILABLE, "the other side hung up");
		if (conn_backlog(conn) == 0)
			return 0;
		if (wait_for(conn->fd, POLLOUT, deadline, err) < 0)
			return -1;
	}
}

/* The next frame; an ERROR is taken as the refusal it is. */
static int hear(struct conn *conn, int64_t deadline, struct handshake *g, struct frame *frame,
		struct error *err)
{
	_cleanup_wire_message_ struct wire_message m = { 0 };
	int r;

	while ((r = conn_next(conn, frame, err)) == 0) {
		if (wait_for(conn->fd, POLLIN, deadline, err) < 0)
			return -1;
		if (conn_fill(conn) < 0)
			return error_set(err, ERR_UNAVAILABLE, "the other side hung up");
	}
	if (r < 0)
		return -1;
	if (frame->type != WIRE_ERROR)
		return 0;
	if (wire_decode(frame, &m, err) < 0)
		return -1;
	g->refusal = m.error.code < WERR_COUNT ? m.error.code : WERR_PROTOCOL;
	return wire_error_take(&m.error, err);
}

static int hear_message(struct conn *conn, int64_t deadline, struct handshake *g,
			enum wire_type wanted, struct wire_message *m, struct error *err)
{
	struct frame frame;

	if (hear(conn, deadline, g, &frame, err) < 0)
		return -1;
	if (frame.type != wanted || frame.stream != 0)
		return error_set(err, ERR_PROTOCOL, "%s was to come, not type 0x%02x",
				 wire_type_name(wanted), frame.type);
	return wire_decode(&frame, m, err);
}

static void keep_early(struct conn *conn, struct handshake *g)
{
	if (conn->in.len > conn->in_pos)
		buf_append(&g->early, conn->in.data + conn->in_pos, conn->in.len - conn->in_pos);
}

int handshake_relay(int fd, const char *place_id, const uint8_t key[HELLO_KEY_SIZE], uint64_t epoch,
		    int64_t deadline, struct handshake *g, struct error *err)
{
	_cleanup_(conn_let_go) struct conn conn;
	_cleanup_wire_message_ struct wire_message m = { 0 };
	struct frame challenge;
	struct hello hello;

	*g = (struct handshake){ 0 };
	conn_init(&conn, fd, WIRE_HELLO_PAYLOAD);
	if (hello_offer(&hello, place_id, epoch, 0, &conn.out, err) < 0 ||
	    say(&conn, deadline, err) < 0 || hear(&conn, deadline, g, &challenge, err) < 0)
		return -1;
	if (hello_answer(&hello, key, &challenge, &conn.out, err) < 0 ||
	    say(&conn, deadline, err) < 0 ||
	    hear_message(&conn, deadline, g, WIRE_WELCOME, &m, err) < 0)
		return -1;
	g->version = hello.version;
	g->features = hello.features;
	g->absence_ms = m.welcome.absence_ms;
	g->pid = (pid_t)m.welcome.pid;
	keep_early(&conn, g);
	return 0;
}

int handshake_keeper(int fd, int64_t deadline, struct handshake *g, struct error *err)
{
	_cleanup_(conn_let_go) struct conn conn;
	_cleanup_wire_message_ struct wire_message m = { 0 };
	struct wire_keeper_hello hello = {
		.version = WIRE_VERSION,
		.min_version = WIRE_MIN_VERSION,
	};

	*g = (struct handshake){ 0 };
	conn_init(&conn, fd, WIRE_HELLO_PAYLOAD);
	if (wire_encode(&conn.out, 0, WIRE_KEEPER_HELLO, &hello, err) < 0 ||
	    say(&conn, deadline, err) < 0 ||
	    hear_message(&conn, deadline, g, WIRE_KEEPER_WELCOME, &m, err) < 0)
		return -1;
	if (m.keeper_welcome.version < WIRE_MIN_VERSION || m.keeper_welcome.version > WIRE_VERSION)
		return error_set(err, ERR_PROTOCOL, "the keeper speaks version %u, we %u to %u",
				 (unsigned)m.keeper_welcome.version, WIRE_MIN_VERSION,
				 WIRE_VERSION);
	g->version = m.keeper_welcome.version;
	g->features = m.keeper_welcome.features;
	g->pid = (pid_t)m.keeper_welcome.pid;
	g->places = m.keeper_welcome.places;
	snprintf(g->program_version, sizeof(g->program_version), "%s",
		 m.keeper_welcome.program_version ? m.keeper_welcome.program_version : "");
	keep_early(&conn, g);
	return 0;
}
