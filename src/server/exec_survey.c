/*
 * Commands that relays hold. The relay is the record of a running command, so what an earlier server
 * left is found there:
 *
 *   at the start        from the files of every relay, before anything is served: a relay need not
 *                       answer for its commands to be listed
 *   later, on a thread  from every relay that was reached anew, which is asked
 *
 * Each command is compared with what this server knows:
 *
 *   known                       nothing is to be done
 *   left by an earlier server   it is taken up as an exec of its lease, with the note that its relay
 *                               kept: it is listed, can be ended, and its output is kept. One of
 *                               which no server has written anything was started by a server that
 *                               died over it, and no client knows it: activity and log report it.
 *   started by this server      its start was reported to the caller as failed. It is ended.
 */
#include "server/exec_survey.h"
#include <poll.h>
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "exec/execs.h"
#include "record/activity.h"
#include "run/realize.h"

#define LIST_WAIT_MS 2000
#define AGAIN_MS 500

struct finding {
	struct server *server;
	const struct lease *lease;
	const char *exec_id;
	int64_t now;
};

static int report_tx(struct tx *tx, void *arg, struct error *err)
{
	const struct finding *f = arg;
	_cleanup_json_ json_t *details = json_object();
	struct activity activity = {
		.company_id = f->lease->company_id,
		.actor = &ACTOR_SYSTEM,
		.action = "environment.exec_found",
		.entity_type = "environment_lease",
		.entity_id = f->lease->id,
		.run_id = id_is_set(f->lease->run_id) ? f->lease->run_id : NULL,
		.details = details,
	};

	json_put_str(details, "execId", f->exec_id);
	json_put_str(details, "placeId", f->lease->place_id);
	return activity_write_tx(tx, f->now, &activity, err);
}

static int take_up(struct server *server, const struct lease *lease, const struct held_exec *held,
		   struct error *err)
{
	struct finding f = { server, lease, held->id, clock_now(&server->clock) };
	const struct found_exec found = {
		.id = held->id,
		.lease_id = lease->id,
		.place_id = lease->place_id,
		.generation = lease->generation,
		.started_ms = held->started_ms,
		.note = held->note,
		.found = !execs_has_output(server->execs, held->id),
	};
	_cleanup_error_ struct error unreported = { 0 };

	if (execs_take_up(server->execs, &found, err) < 0)
		return -1;
	/* Whatever ended while no server was there is only kept. */
	if (!held->running || !found.found)
		return 0;
	log_warn(
		"place %s runs command %s, which no server reported: it is an exec of lease %s now",
		lease->place_id, held->id, lease->id);
	if (DB_WRITE(server->db, "exec.found", report_tx, &f, &unreported) < 0)
		log_warn("activity: exec %s was found: %s", held->id, unreported.message);
	return 0;
}

/* 1: a run's command or that of its provision. */
static int is_of_run(struct server *server, const char *exec_id, struct error *err)
{
	_cleanup_run_ struct run run = { 0 };
	_cleanup_error_ struct error why = { 0 };
	char run_id[ID_SIZE];

	id_copy(run_id, exec_id);
	if (run_get(server->runs, run_id, &run, &why) == 0)
		return 1;
	provision_run_id(exec_id, run_id);
	if (why.code == ERR_NOT_FOUND && run_get(server->runs, run_id, &run, &why) == 0)
		return 1;
	if (why.code == ERR_NOT_FOUND)
		return 0;
	error_move(err, &why);
	return -1;
}

static int judge(struct server *server, const struct reached_place *reached,
		 const struct lease *lease, const struct held_exec *held, struct error *err)
{
	int of_run;

	if (places_has_exec(server->places, held->id) || execs_know(server->execs, held->id))
		return 0;
	if (!reached->again) {
		of_run = is_of_run(server, held->id, err);
		return of_run != 0 ? MIN_OF(of_run, 0) : take_up(server, lease, held, err);
	}
	if (!held->running)
		return 0;
	log_warn("place %s runs command %s, whose start had failed: it is ended", reached->place_id,
		 held->id);
	return places_end_unknown(server->places, reached, held->id, err);
}

/* -1: to be asked again. */
static int survey(struct server *server, const struct reached_place *reached,
		  const struct held_execs *held, struct error *err)
{
	_cleanup_lease_ struct lease lease = { 0 };
	int rc;

	if (held->count == 0)
		return 0;
	rc = lease_of_place(server->leases, reached->place_id, reached->generation, &lease, err);
	/* No lease holds it any more: it is on its way out, with all it holds. */
	if (rc < 0)
		return err->code == ERR_NOT_FOUND ? 0 : -1;
	for (size_t i = 0; i < held->count && rc == 0; i++)
		rc = judge(server, reached, &lease, &held->items[i], err);
	return rc;
}

static int ask(struct server *server, const struct reached_place *reached, struct error *err)
{
	_cleanup_held_execs_ struct held_execs held = { 0 };

	if (places_list_execs(server->places, reached, LIST_WAIT_MS, &held, err) < 0)
		return -1;
	return survey(server, reached, &held, err);
}

/* A journal also has exits that were forgotten. Those with output here and no record were not. */
static void drop_forgotten(struct server *server, struct held_execs *held)
{
	size_t kept = 0;

	for (size_t i = 0; i < held->count; i++) {
		if (held->items[i].running || execs_has_output(server->execs, held->items[i].id))
			held->items[kept++] = held->items[i];
		else
			free(held->items[i].note);
	}
	held->count = kept;
}

void survey_recorded(struct server *server)
{
	_cleanup_free_ struct reached_place *list = NULL;
	size_t count = places_with_relay(server->places, &list);

	for (size_t i = 0; i < count; i++) {
		_cleanup_held_execs_ struct held_execs held = { 0 };
		_cleanup_error_ struct error err = { 0 };

		if (places_recorded_execs(server->places, &list[i], &held, &err) == 0) {
			drop_forgotten(server, &held);
			if (survey(server, &list[i], &held, &err) == 0)
				continue;
		}
		/* Its relay is asked as soon as it is reached. */
		log_warn("what runs in place %s is not known yet: %s", list[i].place_id,
			 err.message);
	}
}

static bool is_worth_asking_again(const struct error *err)
{
	return err->code != ERR_TOO_MANY && err->code != ERR_LEASE_LOST &&
	       err->code != ERR_LEASE_ENDED && err->code != ERR_STALE_GENERATION;
}

static void *survey_all(void *arg)
{
	struct server *server = arg;
	struct reached_place reached;

	while (places_await_reached(server->places, &reached)) {
		struct pollfd stop = { .fd = server->survey_fd, .events = POLLIN };
		_cleanup_error_ struct error err = { 0 };

		if (ask(server, &reached, &err) == 0)
			continue;
		log_info("what runs in place %s is not known: %s", reached.place_id, err.message);
		if (!is_worth_asking_again(&err))
			continue;
		places_ask_again(server->places, &reached);
		poll(&stop, 1, AGAIN_MS);
	}
	return NULL;
}

int survey_start(struct server *server, struct error *err)
{
	int failed;

	server->survey_fd = latch_new(err);
	if (server->survey_fd < 0)
		return -1;
	failed = pthread_create(&server->survey, NULL, survey_all, server);
	if (failed) {
		close_fdp(&server->survey_fd);
		return error_errno(err, failed, "cannot start the thread that asks relays");
	}
	return 0;
}

void survey_stop(struct server *server)
{
	if (server->survey_fd < 0)
		return;
	latch_set(server->survey_fd);
	pthread_join(server->survey, NULL);
	close_fdp(&server->survey_fd);
}
