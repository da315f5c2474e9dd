/*
 * Acquire, release and list with 100,000 finished leases behind them, against the same with 100:
 * two servers side by side, the history written straight into the older one's database beforehand.
 */
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "base/mem.h"
#include "bench.h"
#include "client.h"
#include "store/db.h"

#define OLD 100000
#define YOUNG 100
#define BATCH 1000
#define CYCLES 60

SQL(BENCH_PLACE,
    "INSERT INTO places (id, company_id, environment_id, driver, provider, provider_ref,"
    " state, generation, node_id, boot_epoch, fencing, discoverable, created_at, updated_at)"
    " VALUES ($1, $2, $3, 'sandbox', 'fake', $4, 'gone', 1, 'bench', 1, 'server', 1, $5, $5)");
SQL(BENCH_LEASE,
    "INSERT INTO leases (id, company_id, environment_id, place_id, generation, status,"
    " lease_policy, provider, provider_lease_id, acquired_at, last_used_at, released_at,"
    " cleanup_status, node_id, boot_epoch, created_at, updated_at)"
    " VALUES ($1, $2, $3, $4, 1, 'released', 'ephemeral', 'fake', $5, $6, $6, $6,"
    " 'success', 'bench', 1, $6, $6)");

struct side {
	struct bench b;
	struct client client;
	char environment_id[40], company_id[40];
	int history;
};

struct batch {
	struct side *side;
	int from, count;
};

static int write_batch(struct tx *tx, void *arg, struct error *err)
{
	struct batch *batch = arg;
	struct side *s = batch->side;

	for (int i = 0; i < batch->count; i++) {
		char place[ID_SIZE], lease[ID_SIZE], ref[96];
		int64_t when = 1700000000000 + (batch->from + i) * 1000LL;

		id_new(place);
		id_new(lease);
		snprintf(ref, sizeof(ref), "sandbox://fake/%s/%s", lease, lease);
		if (tx_exec(tx, &BENCH_PLACE, err, B_TEXT(place), B_TEXT(s->company_id),
			    B_TEXT(s->environment_id), B_TEXT(ref), B_INT(when)) < 0 ||
		    tx_exec(tx, &BENCH_LEASE, err, B_TEXT(lease), B_TEXT(s->company_id),
			    B_TEXT(s->environment_id), B_TEXT(place), B_TEXT(ref), B_INT(when)) < 0)
			return -1;
	}
	return 0;
}

static void write_history(struct side *s)
{
	_cleanup_free_ char *path = xasprintf("%s/berth.db", s->b.dir);
	struct error err = { 0 };
	struct db *db;

	if (db_open(&db, &(struct db_options){ .path = path }, &err) < 0)
		bench_fail("%s", err.message);
	for (int i = 0; i < s->history; i += BATCH) {
		struct batch batch = { s, i, s->history - i < BATCH ? s->history - i : BATCH };

		if (DB_WRITE(db, "bench.history", write_batch, &batch, &err) < 0)
			bench_fail("%s", err.message);
	}
	db_close(db);
}

static void prepare(struct side *s, int argc, char **argv, int history)
{
	s->history = history;
	bench_begin(&s->b, argc, argv);
	bench_server_start(&s->b);
	client_open(&s->client, s->b.socket);
	client_setup_fake(&s->client, false, s->environment_id, s->company_id);
	client_close(&s->client);
	bench_server_stop(&s->b);
	write_history(s);
	bench_server_start(&s->b);
	client_open(&s->client, s->b.socket);
}

static double work(struct side *s)
{
	double begin = bench_now();
	char path[128];

	for (int i = 0; i < CYCLES; i++) {
		json_t *lease;

		snprintf(path, sizeof(path), "/api/environments/%s/leases", s->environment_id);
		lease = client_json(&s->client, "POST", path, "{}", 201);
		snprintf(path, sizeof(path), "/api/environments/%s/leases?status=active",
			 s->environment_id);
		json_decref(client_json(&s->client, "GET", path, NULL, 200));
		snprintf(path, sizeof(path), "/api/environments/%s/leases?limit=20",
			 s->environment_id);
		json_decref(client_json(&s->client, "GET", path, NULL, 200));
		snprintf(path, sizeof(path), "/api/environment-leases/%s/release",
			 json_str(lease, "id"));
		json_decref(client_json(&s->client, "POST", path, "{}", 200));
		json_decref(lease);
	}
	return bench_now() - begin;
}

static double ours(struct bench *b, void *arg)
{
	(void)b;
	return work(&((struct side *)arg)[0]);
}

static double peer(struct bench *b, void *arg)
{
	(void)b;
	return work(&((struct side *)arg)[1]);
}

int main(int argc, char **argv)
{
	static struct side sides[2];
	double ratio;

	prepare(&sides[0], argc, argv, OLD);
	prepare(&sides[1], argc, argv, YOUNG);
	ratio = bench_compare(&sides[0].b, ours, peer, sides);
	for (int i = 0; i < 2; i++) {
		client_close(&sides[i].client);
		bench_end(&sides[i].b);
	}
	bench_print("history", ratio);
	return 0;
}
