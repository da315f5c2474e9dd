#include "server/maintenance.h"
#include <poll.h>
#include "api/history.h"
#include "api/server.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "exec/execs.h"
#include "server/data_dir.h"

#define PRUNE_MS ((int64_t)3600 * 1000)

static void beat(struct server *server)
{
	_cleanup_error_ struct error err = { 0 };

	if (db_claim(server->db, server->claimant, &err) == 0 &&
	    node_beat(server->db, &server->clock, &server->node, &err) == 0)
		return;
	log_error("heartbeat: %s", err.message);
	/*
	 * Two servers under one identity would take each other's work for their own. One that lost
	 * its database to another in an outage leaves its commands to their relays: the other does
	 * not touch them for as long as this one's last beat is young.
	 */
	if (err.code == ERR_CONFLICT || err.code == ERR_LOCKED)
		latch_set(server->stop_fd);
}

static void prune(struct server *server)
{
	_cleanup_error_ struct error err = { 0 };
	struct prune_request request = {
		.before_ms = clock_now(&server->clock) - server->options.retention_ms,
	};
	_cleanup_json_ json_t *counts = history_prune(server, &request, &err);
	_cleanup_free_ char *text = counts ? json_text(counts) : NULL;

	if (text)
		log_debug("pruned %s", text);
	else
		log_warn("pruning old history: %s", err.message);
}

static void *maintain(void *arg)
{
	struct server *server = arg;
	struct pollfd stop = { .fd = server->maintenance_fd, .events = POLLIN };
	int64_t next_prune = clock_mono(&server->clock) + PRUNE_MS;
	bool logged[WARNINGS_COUNT] = { false };
	_cleanup_error_ struct error err = { 0 };

	if (history_delete_secrets(server, &err) < 0)
		log_warn("values of old runs: %s", err.message);
	data_keep_reserve(server->data_dirfd);
	while (poll(&stop, 1, (int)server->options.beat_ms) <= 0) {
		beat(server);
		data_keep_reserve(server->data_dirfd);
		execs_recover_rest(server->execs);
		server_log_warnings(server, logged);
		if (clock_mono(&server->clock) >= next_prune) {
			prune(server);
			next_prune = clock_mono(&server->clock) + PRUNE_MS;
		}
	}
	return NULL;
}

int maintenance_start(struct server *server, struct error *err)
{
	int failed;

	server->maintenance_fd = latch_new(err);
	if (server->maintenance_fd < 0)
		return -1;
	failed = pthread_create(&server->maintenance, NULL, maintain, server);
	if (failed) {
		close_fdp(&server->maintenance_fd);
		return error_errno(err, failed, "cannot start the maintenance thread");
	}
	return 0;
}

void maintenance_stop(struct server *server)
{
	if (server->maintenance_fd < 0)
		return;
	latch_set(server->maintenance_fd);
	pthread_join(server->maintenance, NULL);
	close_fdp(&server->maintenance_fd);
}

bool maintenance_is_idle(struct server *server)
{
	int64_t since = http_idle_since(server->http);
	_cleanup_json_ json_t *leases = NULL;

	if (!since || clock_mono(&server->clock) - since < server->options.idle_exit_ms ||
	    runs_active(server->runs) || execs_active(server->execs))
		return false;
	leases = leases_counts(server->leases, NULL);
	return leases && !json_int(leases, "active", 1) && !json_int(leases, "cleanup", 1) &&
	       !json_int(leases, "retained", 1) && !json_int(leases, "intents", 1);
}
