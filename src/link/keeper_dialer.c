/*
 * The keeper of this host as a dialer. A new relay gets its first connection handed over with its
 * config; a relay that is there already is connected to by its socket in the keeper's directory.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/text.h"
#include "link/fault_points.h"
#include "link/keeper_internal.h"
#include "wire/place.h"

/* The first connection of a relay: its end goes along with the question, with the hello in it. */
static int connect_ahead(const struct buf *hello, int *ours, int *theirs, struct error *err)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return error_errno(err, errno, "making a connection");
	*ours = pair[0];
	*theirs = pair[1];
	return fd_write_all(*ours, hello->data, hello->len, err);
}

static struct stream *ask_for_place(struct link *link, const struct wire_place_make *make,
				    int handed, struct error *err)
{
	struct wire_place_make handing = *make;
	struct stream *stream;

	if (handed < 0)
		return link_open(link, WIRE_PLACE_MAKE, make, 0, err);
	handing.handed = 1;
	stream = link_open_handing(link, WIRE_PLACE_MAKE, &handing, handed, make, err);
	wipe(handing.key, sizeof(handing.key));
	return stream;
}

/* 1: the keeper has gone, before it was asked or over the question. */
static int make_once(struct link *link, const struct wire_place_make *make, int handed,
		     int64_t deadline, struct relay_place *out, struct error *err)
{
	struct stream *stream = NULL;
	int rc = SAY_GUARDED("keeper.make",
			     (stream = ask_for_place(link, make, handed, err)) ? 0 : -1, err);

	/* Also when the answer is of no use: the place is there then, or never will be. */
	if (stream && stream_await(stream, WIRE_PLACE_STATE, keeper_take_place, out, deadline,
				   rc == 0 ? err : NULL) < 0)
		rc = -1;
	stream_close(stream);
	return rc < 0 && !link_is_up(link) ? 1 : rc;
}

/* The flag that an earlier release's keeper names is one of that release. */
static void explain_bounds(struct link *link, struct error *err)
{
	if (keeper_can(link, WIRE_KEEPER_BOUNDS) || !err || !strstr(err->message, "--allow-path"))
		return;
	error_set(
		err, ERR_FORBIDDEN,
		"the keeper of an earlier release still runs, and mounts only what the list it was "
		"started with allows, until its last place has ended; `berth doctor` shows that "
		"list");
}

/*
 * With a hello (wire/hello.h) a new relay gets its first connection together with its config, the
 * hello in it: *fd is our end, and the relay answers WELCOME. -1: the relay was there before, or
 * the keeper is of an earlier release. A keeper that dies over the question is replaced and asked
 * again.
 */
static int keeper_make(struct keeper *k, const struct wire_place_make *make,
		       const struct buf *hello, int64_t deadline, struct relay_place *out, int *fd,
		       struct error *err)
{
	for (int attempt = 1;; attempt++) {
		_cleanup_link_ struct link *link = NULL;
		_cleanup_close_ int ours = -1, theirs = -1;
		int rc;

		*fd = -1;
		error_clear(err);
		if (keeper_link(k, true, deadline, &link, err) < 0)
			return error_wrap(err, "making the place's relay");
		if (hello && keeper_can(link, WIRE_KEEPER_HANDS) &&
		    connect_ahead(hello, &ours, &theirs, err) < 0)
			return -1;
		rc = make_once(link, make, theirs, deadline, out, err);
		if (rc == 0) {
			if (out->handed)
				*fd = steal_fd(&ours);
			return 0;
		}
		/* A keeper that idled away or was killed is replaced by the next attempt. */
		if (rc < 0 || attempt == KEEPER_ATTEMPTS || boottime_ms() >= deadline) {
			explain_bounds(link, err);
			return error_wrap(err, "making the place's relay");
		}
	}
}

static struct keeper *keeper_of(struct dialer *dialer)
{
	return (struct keeper *)dialer;
}

/* What an earlier holder's end has not removed yet makes way first. */
static int make_place(struct keeper *k, const struct dial *wanted, int64_t deadline,
		      struct dialed *out, struct relay_place *place, struct error *err)
{
	const struct wire_place_make *make = wanted->make;

	/* A provider may leave its directory to the first who needs it. */
	if (make->root && dir_make(AT_FDCWD, make->root, 0700, err) < 0)
		return -1;
	if (wanted->replace && keeper_destroy(k, wanted->place_id, deadline, err) < 0)
		return -1;
	out->replaced = wanted->replace;
	if (keeper_make(k, make, wanted->hello, deadline, place, &out->fd, err) < 0)
		return -1;
	if (place->state != PLACE_ENDING)
		return 0;
	close_fdp(&out->fd);
	if (keeper_destroy(k, wanted->place_id, deadline, err) < 0)
		return -1;
	return keeper_make(k, make, wanted->hello, deadline, place, &out->fd, err);
}

static int relay_is_dead(const struct relay_place *place, struct error *err)
{
	return error_set(err, ERR_LEASE_LOST, "the place's relay is dead: %s",
			 place->ended ? place->ended : "no reason known");
}

static int make_and_hand(struct keeper *k, const struct dial *wanted, int64_t deadline,
			 struct dialed *out, struct error *err)
{
	_cleanup_(relay_place_clear) struct relay_place place = { 0 };

	if (make_place(k, wanted, deadline, out, &place, err) < 0)
		return -1;
	if (place.state != PLACE_ALIVE) {
		close_fdp(&out->fd);
		return relay_is_dead(&place, err);
	}
	out->made = true;
	out->walls = place.walls;
	out->handed = out->fd >= 0;
	return 0;
}

/* Nobody listens: is the relay dead, or is it only that we cannot reach it? Always an error. */
static int judge(struct keeper *k, const char *place_id, int64_t deadline, struct error *err)
{
	_cleanup_(relay_place_clear) struct relay_place found = { 0 };

	if (FAULT_HERE("channel.judge", err) < 0)
		return -1;
	if (keeper_find(k, place_id, deadline, &found, err) < 0)
		return err->code != ERR_NOT_FOUND
			       ? -1
			       : error_set(err, ERR_LEASE_LOST, "the place has no relay");
	return found.state == PLACE_ALIVE
		       ? error_set(err, ERR_TIMEOUT, "the place's relay does not answer")
		       : relay_is_dead(&found, err);
}

static char *relay_socket(const char *place_id)
{
	return xasprintf(PLACES_NAME "/%s/" PLACE_SOCKET_NAME, place_id);
}

static int connect_to_relay(struct keeper *k, const struct dial *wanted, int64_t deadline,
			    struct dialed *out, struct error *err)
{
	_cleanup_free_ char *path = relay_socket(wanted->place_id);
	pid_t pid;

	if (FAULT_HERE("channel.connect", err) < 0)
		return -1;
	if (keeper_connect(k, path, wanted->behind_walls, &out->fd, &pid, err) == 0)
		return 0;
	if (err->code == ERR_FORBIDDEN) {
		log_warn("place %s: %s", wanted->place_id, err->message);
		return error_recode(err, ERR_LEASE_LOST);
	}
	if (err->errnum != ENOENT && err->errnum != ECONNREFUSED)
		return -1;
	error_clear(err);
	return judge(k, wanted->place_id, deadline, err);
}

static int keeper_dial(struct dialer *self, const struct dial *wanted, int64_t deadline,
		       struct dialed *out, struct error *err)
{
	struct keeper *k = keeper_of(self);

	*out = (struct dialed){ .fd = -1 };
	if (wanted->make && make_and_hand(k, wanted, deadline, out, err) < 0)
		return -1;
	return out->handed ? 0 : connect_to_relay(k, wanted, deadline, out, err);
}

static int keeper_end(struct dialer *self, const char *place_id, enum dial_end what,
		      int64_t deadline, struct error *err)
{
	struct wire_place_destroy m = { .place_id = place_id, .processes_only = 1 };
	_cleanup_error_ struct error why = { 0 };

	if (what == END_PLACE)
		return keeper_destroy(keeper_of(self), place_id, deadline, err);
	if (keeper_ask(keeper_of(self), WIRE_PLACE_DESTROY, &m, WIRE_DONE, NULL, NULL, deadline,
		       &why) == 0 ||
	    why.code == ERR_NOT_FOUND)
		return 0;
	error_move(err, &why);
	return error_wrap(err, "ending the place's processes");
}

static bool keeper_may_have_relay(struct dialer *self, const char *place_id)
{
	_cleanup_free_ char *path = relay_socket(place_id);

	return faccessat(keeper_of(self)->dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int keeper_open_files(struct dialer *self, const char *place_id, struct error *err)
{
	_cleanup_free_ char *path = xasprintf(PLACES_NAME "/%s/" PLACE_SPOOL_NAME, place_id);
	int fd = openat(keeper_of(self)->dirfd, path,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	if (errno != EMFILE && errno != ENFILE && errno != ENOMEM)
		return DIALER_NO_FILES;
	error_errno(err, errno, "reading what a relay left");
	return DIALER_NOT_NOW;
}

static int keeper_workspace_upper(struct dialer *self, const char *place_id, int64_t deadline,
				  char **path, struct error *err)
{
	_cleanup_(relay_place_clear) struct relay_place found = { 0 };

	if (keeper_find(keeper_of(self), place_id, deadline, &found, err) < 0)
		return -1;
	if (!found.upper || !found.upper[0])
		return error_set(err, ERR_NOT_FOUND, "the place has no layer over its workspace");
	*path = steal(found.upper);
	return 0;
}

const struct dialer KEEPER_DIALER = {
	.dial = keeper_dial,
	.end = keeper_end,
	.may_have_relay = keeper_may_have_relay,
	.open_files = keeper_open_files,
	.workspace_upper = keeper_workspace_upper,
};

struct dialer *keeper_dialer(struct keeper *k)
{
	return &k->dialer;
}
