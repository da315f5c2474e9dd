/*
 * GET /api/companies/:cid/events: what happens in a company as server-sent events, from now on or
 * from a number on that the reader has had before.
 */
#include <poll.h>
#include <errno.h>
#include "api/answer.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "live/feed.h"

#define PAGE 200
#define STALL_MS 30000 /* a reader of old events that takes nothing for this long is gone */
#define WAIT_MS 30000
/*
 * A token may lose its rights while a stream is open. Such a stream ends now and then; its reader
 * comes back with the number it has got to, and is asked again who it is.
 */
#define TOKEN_STREAM_MS (10 * 60 * 1000)

struct event_stream {
	struct server *server;
	struct feed_reader *reader;
	char company_id[ID_SIZE];
	unsigned types;
	int64_t after;  /* the last number that was looked at */
	int64_t until;  /* mono: when it ends by itself; -1 never */
	bool follow;    /* else it ends where the events do */
	bool caught_up; /* the database had no more */
	bool attached;
	struct buf out; /* not sent yet */
};

static void stream_free(void *arg)
{
	struct event_stream *s = arg;

	if (s->reader)
		feed_leave(s->reader);
	buf_free(&s->out);
	free(s);
}

/* The reader's number is of no use: too old, or from another life of this database. */
static void put_reset(struct event_stream *s, const struct event_page *page)
{
	int64_t from = s->after > page->now ? page->now : page->floor;

	buf_printf(&s->out,
		   "id: %lld\nevent: reset\ndata: {\"companyId\":\"%s\",\"lastEventId\":%lld,"
		   "\"oldestId\":%lld}\n\n",
		   (long long)from, s->company_id, (long long)s->after, (long long)from + 1);
	s->after = from;
}

static void put_events(struct event_stream *s, const struct event_page *page)
{
	for (size_t i = 0; i < page->count; i++) {
		const struct event_row *row = &page->rows[i];

		if (row->payload && s->types >> row->type & 1)
			frame_event(&s->out, s->company_id, row);
		s->after = row->seq;
	}
	s->caught_up = !page->more;
	if (s->caught_up)
		s->after = MAX_OF(s->after, page->now);
}

/* Old events from the database. */
static int replay(struct event_stream *s, struct error *err)
{
	_cleanup_event_page_ struct event_page page = { 0 };

	if (events_after(s->server->db, s->company_id, s->after, PAGE, &page, err) < 0)
		return -1;
	if (s->after < page.floor || s->after > page.now)
		put_reset(s, &page);
	else
		put_events(s, &page);
	return 0;
}

/* ---- where the socket is ours ---- */

static int send_out(struct event_stream *s, int fd, int stop_fd)
{
	int r = socket_send(fd, stop_fd, s->out.data, s->out.len, STALL_MS);

	buf_reset(&s->out);
	return r;
}

/* Asleep until the client or the feed ends the connection, or the server stops. */
static void sleep_until_over(const struct event_stream *s, int fd, int stop_fd)
{
	struct pollfd fds[] = {
		{ .fd = fd, .events = POLLRDHUP },
		{ .fd = stop_fd, .events = POLLIN },
	};
	int n;

	do
		n = poll(fds, ARRAY_SIZE(fds), clock_poll_timeout(&s->server->clock, s->until));
	while (n < 0 && errno == EINTR);
}

static void run_direct(void *arg, int fd, int stop_fd)
{
	struct event_stream *s = arg;
	_cleanup_error_ struct error err = { 0 };

	/* The preamble, then old events until the feed's ring reaches back to where we are. */
	do {
		if (send_out(s, fd, stop_fd) < 0 || (!s->follow && s->caught_up))
			return;
		if (s->follow && feed_attach(s->reader, s->after, fd)) {
			buf_free(&s->out);
			sleep_until_over(s, fd, stop_fd);
			return;
		}
	} while (replay(s, &err) == 0);
	log_warn("events of %s: %s", s->company_id, err.message);
}

/* ---- where it is libmicrohttpd's ---- */

static ssize_t take_out(struct event_stream *s, char *buf, size_t max)
{
	size_t n = MIN_OF(max, s->out.len);

	memcpy(buf, s->out.data, n);
	buf_consume(&s->out, n);
	return (ssize_t)n;
}

static ssize_t next_bytes(void *arg, struct http_connection *connection, char *buf, size_t max)
{
	struct event_stream *s = arg;
	_cleanup_error_ struct error err = { 0 };
	int event_fd = feed_event(s->reader, &err);

	while (event_fd >= 0) {
		if (s->out.len)
			return take_out(s, buf, max);
		if (!s->follow && s->caught_up)
			return 0;
		if (!s->attached) {
			s->attached = s->follow && feed_attach(s->reader, s->after, -1);
			if (!s->attached && replay(s, &err) < 0) {
				log_warn("events of %s: %s", s->company_id, err.message);
				return -1;
			}
			continue;
		}

		ssize_t n = feed_take(s->reader, buf, max);

		if (n != 0)
			return n > 0 ? n : 0;
		if (stream_wait(connection, event_fd, WAIT_MS) == STREAM_GONE)
			return -1;
		if (s->until >= 0 && clock_mono(&s->server->clock) >= s->until)
			return 0;
	}
	return -1;
}

/* ---- the request ---- */

static int parse_types(const char *text, unsigned *types, struct error *err)
{
	_cleanup_free_ char *copy = xstrdup(text);
	char *rest = NULL;

	*types = text ? 0 : FEED_ALL_TYPES;
	for (char *name = copy ? strtok_r(copy, ",", &rest) : NULL; name;
	     name = strtok_r(NULL, ",", &rest)) {
		enum event_type type;

		if (!event_type_parse(name, &type))
			return error_set(err, ERR_VALIDATION,
					 "query: types has an unknown event; heartbeat.run.status "
					 "is a known one");
		*types |= 1u << type;
	}
	return *types ? 0 : error_set(err, ERR_VALIDATION, "query: types is empty");
}

/* -1 when the reader has had nothing yet. The header is newer than what a page put in the URL. */
static int parse_last_id(const struct request *request, int64_t *after, struct error *err)
{
	const char *text = request->last_event_id ? request->last_event_id
						  : request_query(request, "lastEventId");

	*after = -1;
	if (text && text[0] && !parse_i64(text, 0, INT64_MAX, after))
		return error_set(err, ERR_VALIDATION,
				 "Last-Event-ID must be the id of an event, a number");
	return 0;
}

static bool is_trusted_locally(const struct actor *actor)
{
	return actor->kind == ACTOR_LOCAL;
}

static int join(struct event_stream *s, int64_t last_id, struct error *err)
{
	_cleanup_event_page_ struct event_page page = { 0 };

	if (events_after(s->server->db, s->company_id, 0, 0, &page, err) < 0 ||
	    feed_join(s->server->feed, s->company_id, s->types, page.now, &s->reader, err) < 0)
		return -1;
	s->after = last_id >= 0 ? last_id : page.now;
	s->caught_up = last_id < 0;
	buf_puts(&s->out, "retry: 1000\n");
	if (last_id >= 0 && (last_id < page.floor || last_id > page.now))
		put_reset(s, &page);
	else
		buf_printf(&s->out, "id: %lld\n\n", (long long)s->after);
	return 0;
}

static int open_stream(void *arg, struct request *request, struct response *response,
		       struct error *err)
{
	struct server *server = arg;
	_cleanup_company_ struct company company = { 0 };
	unsigned types;
	int64_t last_id;

	if (company_of_path(server, request, &company, err) < 0 ||
	    parse_types(request_query(request, "types"), &types, err) < 0 ||
	    parse_last_id(request, &last_id, err) < 0)
		return -1;

	struct event_stream *s = xcalloc(1, sizeof(*s));
	struct stream stream = { next_bytes, stream_free, s, NULL };

	s->server = server;
	s->types = types;
	s->follow = request_query_flag(request, "follow", true);
	s->until = is_trusted_locally(&request->actor)
			   ? -1
			   : clock_mono(&server->clock) + TOKEN_STREAM_MS;
	id_copy(s->company_id, company.id);
	if (join(s, last_id, err) < 0) {
		stream_free(s);
		return -1;
	}
	response_stream(response, "text/event-stream", &stream);
	response->direct = run_direct;
	/* Proxies that collect answers would hold events back. */
	response_header(response, "X-Accel-Buffering", "no");
	return 0;
}

static const struct field QUERY[] = {
	{ .name = "types",
	  .type = FIELD_STRING,
	  .min = 1,
	  .max = 500,
	  .summary = "Only these, separated by commas: heartbeat.run.queued, heartbeat.run.status, "
		     "heartbeat.run.log, workspace.progress, workspace.staged, "
		     "workspace.collected, agent.status, activity.logged" },
	{ .name = "lastEventId",
	  .type = FIELD_STRING,
	  .max = 20,
	  .summary = "Start after this event, like the header Last-Event-ID" },
	{ .name = "follow",
	  .type = FIELD_BOOL,
	  .summary = "0: the stream ends after the last existing event" },
	{ 0 },
};

ROUTES(EVENT_ROUTES, 190) = {
	{ .method = HTTP_GET,
	  .path = "/api/companies/:cid/events",
	  .flags = ROUTE_STREAM,
	  .access = ACCESS_READ,
	  .subject = SUBJECT_COMPANY,
	  .query = QUERY,
	  .run = open_stream,
	  .summary = "Events of a company, as server-sent events" },
	{ 0 },
};
