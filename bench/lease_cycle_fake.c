/*
 * Durable acquire + release of fake places over HTTP by 8 clients, against what it cannot do
 * without: 4 group commits and one fsynced append per cycle, by 8 threads on the same machine.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/id.h"
#include "bench.h"
#include "client.h"
#include "db/db.h"

#define CLIENTS 8
#define CYCLES 40

SQL(BENCH_INSERT, "INSERT INTO counters (name, value) VALUES ($1, 1)"
		  " ON CONFLICT (name) DO UPDATE SET value = counters.value + 1");

struct state {
	struct client clients[CLIENTS];
	char environment_id[40];
	struct db *db;
	int journal[CLIENTS];
};

static void cycle_ours(int index, void *arg)
{
	struct state *s = arg;
	struct client *c = &s->clients[index];
	char path[128];

	for (int i = 0; i < CYCLES; i++) {
		json_t *lease;

		snprintf(path, sizeof(path), "/api/environments/%s/leases", s->environment_id);
		lease = client_json(c, "POST", path, "{}", 201);
		snprintf(path, sizeof(path), "/api/environment-leases/%s/release",
			 json_str(lease, "id"));
		json_decref(lease);
		json_decref(client_json(c, "POST", path, "{}", 200));
	}
}

static int bump(struct tx *tx, void *arg, struct error *err)
{
	return tx_exec(tx, &BENCH_INSERT, err, B_TEXT(arg)) < 0 ? -1 : 0;
}

static void cycle_peer(int index, void *arg)
{
	struct state *s = arg;
	char name[32];

	snprintf(name, sizeof(name), "bench-%d", index);
	for (int i = 0; i < CYCLES; i++) {
		for (int k = 0; k < 4; k++) {
			struct error err = { 0 };

			if (DB_WRITE(s->db, "bench.bump", bump, name, &err) < 0)
				bench_fail("%s", err.message);
		}
		if (write(s->journal[index], name, sizeof(name)) < 0 ||
		    fdatasync(s->journal[index]) < 0)
			bench_fail("journal");
	}
}

static double ours(struct bench *b, void *arg)
{
	(void)b;
	return bench_parallel(CLIENTS, cycle_ours, arg);
}

static double peer(struct bench *b, void *arg)
{
	(void)b;
	return bench_parallel(CLIENTS, cycle_peer, arg);
}

int main(int argc, char **argv)
{
	static struct state s;
	struct bench b;
	struct error err = { 0 };
	char path[128], company[40];
	double ratio;

	bench_begin(&b, argc, argv);
	bench_server_start(&b);
	for (int i = 0; i < CLIENTS; i++) {
		client_open(&s.clients[i], b.socket);
		snprintf(path, sizeof(path), "%s/journal-%d", b.dir, i);
		s.journal[i] = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	}
	client_setup_fake(&s.clients[0], false, s.environment_id, company);
	snprintf(path, sizeof(path), "%s/peer.db", b.dir);
	if (db_open(&s.db, &(struct db_options){ .path = path }, &err) < 0)
		bench_fail("%s", err.message);
	ratio = bench_compare(&b, ours, peer, &s);
	db_close(s.db);
	bench_end(&b);
	bench_print("lease-cycle-fake", ratio);
	return 0;
}
