/*
 * The connections there are: how many of strangers, and how long each may take over the head of a
 * request. A stranger is who has neither local trust nor brought a token that is good. Each peer
 * (http/auth.h: a uid of this machine, else an address) may have STRANGERS_PER_PEER of them, all
 * together half of the room, so that the other half is there for those who are known.
 *
 * The library's own limit counts from the last byte, so a byte a minute keeps a connection for
 * ever. Here a head has a deadline that no byte moves:
 *
 *   accepted, or its last answer is out    `due` in HEAD seconds; of who is known in idle seconds
 *   the request's first line is there      `due` in HEAD seconds at most
 *   the head is there                      none (0): the handler has its own limits
 *   overdue                                CLOSING: shut by the one thread that looks after all
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "http/exchange.h"
#include "http/trust.h"

#define CLOSING (-1)
#define SLACK_MS 1000 /* the library's idle limit comes first */

/* Asked under the lock. */
static bool has_room(const struct http_connection *connection, size_t limit)
{
	size_t of_peer = 0, all = 0;

	for (const struct http_connection *c = connection->http->connections; c; c = c->next) {
		if (c->is_known || c->is_unix != connection->is_unix)
			continue;
		all++;
		of_peer += memcmp(&c->peer, &connection->peer, sizeof(c->peer)) == 0;
	}
	return of_peer < STRANGERS_PER_PEER && all < limit / 2;
}

/* Wakes the watcher if it would sleep beyond that. */
static void set_due(struct http_connection *connection, int64_t due)
{
	struct http *http = connection->http;

	atomic_store(&connection->due, due);
	if (due >= atomic_load(&http->watched_until))
		return;
	pthread_mutex_lock(&http->lock);
	pthread_cond_signal(&http->overdue);
	pthread_mutex_unlock(&http->lock);
}

static int64_t patience_ms(const struct http_connection *connection)
{
	const struct http *http = connection->http;

	return connection->is_known ? (int64_t)http->idle_seconds * 1000 + SLACK_MS : http->head_ms;
}

static void turn_away(struct http_connection *connection)
{
	static const char body[] = "{\"error\":\"too many connections without a token are open; "
				   "close some\",\"code\":\"unavailable\"}";
	char text[400];
	int len = snprintf(text, sizeof(text),
			   "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
			   "Connection: close\r\nContent-Length: %zu\r\n\r\n%s",
			   sizeof(body) - 1, body);

	/* Best told, but not to be waited for. */
	if ((connection->is_unix || !connection->http->tls) &&
	    send(connection->fd, text, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		log_debug("a connection too many could not be told");
	shutdown(connection->fd, SHUT_RDWR);
}

void connection_join(struct http_connection *connection)
{
	struct http *http = connection->http;
	bool room;

	connection->peer = peer_of_socket(connection->fd);
	connection->trust =
		!connection->is_wide && peer_is_trusted(connection->fd) ? TRUST_YES : TRUST_NO;
	connection->is_known = connection->trust == TRUST_YES;
	pthread_mutex_lock(&http->lock);
	room = connection->is_known || has_room(connection, http->max_connections);
	connection->next = http->connections;
	if (connection->next)
		connection->next->prev = connection;
	http->connections = connection;
	http->connection_count++;
	pthread_mutex_unlock(&http->lock);
	if (room) {
		set_due(connection, clock_mono(http->clock) + patience_ms(connection));
		return;
	}
	atomic_store(&connection->due, CLOSING);
	turn_away(connection);
}

void connection_leave(struct http_connection *connection)
{
	struct http *http = connection->http;

	pthread_mutex_lock(&http->lock);
	if (connection->prev)
		connection->prev->next = connection->next;
	else
		http->connections = connection->next;
	if (connection->next)
		connection->next->prev = connection->prev;
	http->connection_count--;
	pthread_mutex_unlock(&http->lock);
}

void connection_is_met(struct http_connection *connection)
{
	if (connection->is_known)
		return;
	pthread_mutex_lock(&connection->http->lock);
	connection->is_known = true;
	pthread_mutex_unlock(&connection->http->lock);
}

void connection_reads_head(struct http_connection *connection)
{
	int64_t due = clock_mono(connection->http->clock) + connection->http->head_ms;
	int64_t was = atomic_load(&connection->due);

	if (was != CLOSING && (was == 0 || due < was))
		set_due(connection, due);
}

bool connection_has_head(struct http_connection *connection)
{
	return atomic_exchange(&connection->due, 0) != CLOSING;
}

void connection_rests(struct http_connection *connection)
{
	if (!connection->left_http)
		set_due(connection, clock_mono(connection->http->clock) + patience_ms(connection));
}

/* Shuts what is overdue; when the next will be. Under the lock. */
static int64_t look_around(struct http *http, int64_t now)
{
	int64_t next = INT64_MAX;

	for (struct http_connection *c = http->connections; c; c = c->next) {
		int64_t due = atomic_load(&c->due);

		if (due <= 0)
			continue;
		if (due > now) {
			next = MIN_OF(next, due);
			continue;
		}
		/* Unless its head has arrived at this moment. */
		if (atomic_compare_exchange_strong(&c->due, &due, CLOSING))
			shutdown(c->fd, SHUT_RDWR);
	}
	return next;
}

static void sleep_until(struct http *http, int64_t ms)
{
	int64_t left = ms - clock_mono(http->clock);

	cond_wait_until(&http->overdue, &http->lock,
			ms == INT64_MAX ? -1 : boottime_ms() + MAX_OF(left, 1));
}

static void *watch(void *arg)
{
	struct http *http = arg;

	pthread_mutex_lock(&http->lock);
	while (!atomic_load(&http->stopping)) {
		/*
		 * First: a deadline that is set while the look goes on is either seen by it or
		 * wakes the sleep, which begins under the lock.
		 */
		atomic_store(&http->watched_until, INT64_MAX);

		int64_t next = look_around(http, clock_mono(http->clock));

		atomic_store(&http->watched_until, next);
		sleep_until(http, next);
	}
	pthread_mutex_unlock(&http->lock);
	return NULL;
}

int connections_watch(struct http *http, struct error *err)
{
	int rc = pthread_create(&http->watcher, NULL, watch, http);

	if (rc != 0)
		return error_errno(err, rc, "cannot start a thread");
	http->is_watched = true;
	return 0;
}

void connections_unwatch(struct http *http)
{
	if (!http->is_watched)
		return;
	pthread_mutex_lock(&http->lock);
	pthread_cond_signal(&http->overdue);
	pthread_mutex_unlock(&http->lock);
	pthread_join(http->watcher, NULL);
	http->is_watched = false;
}
