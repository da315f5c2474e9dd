#include <pthread.h>
#include <string.h>
#include "record/event.h"

#define PRUNE_ROWS 500

SQL(EVENT_COMPANIES, "SELECT id FROM companies WHERE id > $1 ORDER BY id LIMIT 1");
SQL(EVENT_OLDEST, "SELECT seq FROM events WHERE company_id = $1 ORDER BY seq LIMIT 1");
SQL(EVENT_NEWEST, "SELECT seq FROM events WHERE company_id = $1 ORDER BY seq DESC LIMIT 1");
SQL(EVENT_COUNT_AFTER, "SELECT COUNT(*) FROM events WHERE company_id = $1 AND seq > $2");
SQL(EVENT_NTH_OLDEST, "SELECT seq FROM events WHERE company_id = $1"
		      " ORDER BY seq LIMIT 1 OFFSET CAST($2 AS BIGINT)");
/* Events of a company are old from one end, so looking at that end is enough. */
SQL(EVENT_PRUNE, "WITH oldest AS MATERIALIZED"
		 " (SELECT seq FROM events WHERE company_id = $1 ORDER BY seq LIMIT 500)"
		 " DELETE FROM events WHERE seq IN (SELECT seq FROM oldest)"
		 " AND (created_at < $2 OR seq <= $3) RETURNING seq");

/*
 * How many events a company had when somebody last looked: counting them all again would be most
 * of what pruning costs. Numbers only rise and events go from the old end only, so as long as the
 * oldest is the same nothing has gone, and what came is behind the newest.
 */
struct tally {
	char company_id[ID_SIZE];
	int64_t oldest, newest, count; /* oldest 0: nothing is known */
};

struct event_tallies {
	pthread_mutex_t lock;
	struct tally *of;
	size_t count;
};

struct event_tallies *event_tallies_new(void)
{
	struct event_tallies *tallies = xcalloc(1, sizeof(*tallies));

	pthread_mutex_init(&tallies->lock, NULL);
	return tallies;
}

void event_tallies_free(struct event_tallies *tallies)
{
	if (!tallies)
		return;
	pthread_mutex_destroy(&tallies->lock);
	free(tallies->of);
	free(tallies);
}

static struct tally *tally_of(struct event_tallies *tallies, const char *company_id)
{
	for (size_t i = 0; i < tallies->count; i++)
		if (strcmp(tallies->of[i].company_id, company_id) == 0)
			return &tallies->of[i];
	return NULL;
}

static void tally_recall(struct event_tallies *tallies, const char *company_id, struct tally *out)
{
	*out = (struct tally){ 0 };
	id_copy(out->company_id, company_id);
	pthread_mutex_lock(&tallies->lock);

	const struct tally *known = tally_of(tallies, company_id);

	if (known)
		*out = *known;
	pthread_mutex_unlock(&tallies->lock);
}

static void tally_keep(struct event_tallies *tallies, const struct tally *tally)
{
	pthread_mutex_lock(&tallies->lock);

	struct tally *known = tally_of(tallies, tally->company_id);

	if (!known) {
		tallies->of = xreallocarray(tallies->of, tallies->count + 1, sizeof(*tallies->of));
		known = &tallies->of[tallies->count++];
	}
	*known = *tally;
	pthread_mutex_unlock(&tallies->lock);
}

struct pruning {
	char company_id[ID_SIZE];
	int64_t before_ms, keep, cutoff;
	bool found;
	struct tally known, now;
	int64_t removed, oldest_before, oldest_after; /* of one step */
};

/* The number in the first column of the first row; 0 without one. */
static int number_tx(struct tx *tx, const struct sql *sql, const struct bind *binds, int64_t *out,
		     struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };

	if (tx_query_(tx, &c, sql, binds, err) < 0)
		return -1;

	int r = cursor_next(&c, err);

	*out = r > 0 ? col_int(&c, 0) : 0;
	return r < 0 ? -1 : 0;
}

static int next_company(struct tx *tx, void *arg, struct error *err)
{
	struct pruning *pruning = arg;
	_cleanup_cursor_ struct cursor c = { 0 };

	if (tx_query(tx, &c, &EVENT_COMPANIES, err, B_TEXT(pruning->company_id)) < 0)
		return -1;

	int r = cursor_next(&c, err);

	pruning->found = r > 0;
	if (r > 0)
		id_copy(pruning->company_id, col_text(&c, 0));
	return r < 0 ? -1 : 0;
}

static int count_events(struct tx *tx, struct pruning *pruning, struct error *err)
{
	const struct tally *known = &pruning->known;
	struct tally *now = &pruning->now;
	const struct bind *company = B_ARRAY_(B_TEXT(pruning->company_id));
	int64_t since = 0, came;

	*now = *known;
	if (number_tx(tx, &EVENT_OLDEST, company, &now->oldest, err) < 0 ||
	    number_tx(tx, &EVENT_NEWEST, company, &now->newest, err) < 0)
		return -1;
	if (known->oldest && known->oldest == now->oldest)
		since = known->newest;
	if (number_tx(tx, &EVENT_COUNT_AFTER, B_ARRAY_(B_TEXT(pruning->company_id), B_INT(since)),
		      &came, err) < 0)
		return -1;
	now->count = (since ? known->count : 0) + came;
	return 0;
}

/* The last of those that are too many, which are the oldest. */
static int find_cutoff(struct tx *tx, void *arg, struct error *err)
{
	struct pruning *pruning = arg;

	pruning->cutoff = 0;
	if (count_events(tx, pruning, err) < 0)
		return -1;
	if (pruning->now.count <= pruning->keep)
		return 0;
	return number_tx(tx, &EVENT_NTH_OLDEST,
			 B_ARRAY_(B_TEXT(pruning->company_id),
				  B_INT(pruning->now.count - pruning->keep - 1)),
			 &pruning->cutoff, err);
}

static int prune_some(struct tx *tx, void *arg, struct error *err)
{
	struct pruning *pruning = arg;
	const struct bind *company = B_ARRAY_(B_TEXT(pruning->company_id));
	_cleanup_cursor_ struct cursor c = { 0 };
	int64_t highest = 0;
	int r;

	pruning->removed = 0;
	if (number_tx(tx, &EVENT_OLDEST, company, &pruning->oldest_before, err) < 0 ||
	    tx_query(tx, &c, &EVENT_PRUNE, err, B_TEXT(pruning->company_id),
		     B_INT(pruning->before_ms), B_INT(pruning->cutoff)) < 0)
		return -1;
	while ((r = cursor_next(&c, err)) > 0) {
		pruning->removed++;
		highest = MAX_OF(highest, col_int(&c, 0));
	}
	cursor_close(&c);
	if (r < 0 || number_tx(tx, &EVENT_OLDEST, company, &pruning->oldest_after, err) < 0)
		return -1;
	return highest ? event_raise_floor_tx(tx, pruning->company_id, highest, err) : 0;
}

/* If somebody else has pruned meanwhile, the next one counts anew. */
static void note_step(struct pruning *pruning)
{
	struct tally *now = &pruning->now;

	if (now->oldest != pruning->oldest_before) {
		now->oldest = 0;
		return;
	}
	now->count -= pruning->removed;
	now->oldest = pruning->oldest_after;
}

/* In small steps: other writers wait behind each of them. */
static int64_t prune_company(struct db *db, struct pruning *pruning, struct error *err)
{
	int64_t total = 0;

	if (db_read(db, find_cutoff, pruning, err) < 0)
		return -1;
	do {
		if (DB_WRITE(db, "event.prune", prune_some, pruning, err) < 0)
			return -1;
		note_step(pruning);
		total += pruning->removed;
	} while (pruning->removed == PRUNE_ROWS);
	return total;
}

int64_t events_prune(struct db *db, struct event_tallies *tallies, int64_t before_ms, int64_t keep,
		     struct error *err)
{
	struct pruning pruning = { .before_ms = before_ms, .keep = keep };
	int64_t total = 0;

	for (;;) {
		if (db_read(db, next_company, &pruning, err) < 0)
			return -1;
		if (!pruning.found)
			return total;
		tally_recall(tallies, pruning.company_id, &pruning.known);

		int64_t removed = prune_company(db, &pruning, err);

		if (removed < 0)
			return -1;
		tally_keep(tallies, &pruning.now);
		total += removed;
	}
}
