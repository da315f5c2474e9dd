/* Small questions to the database that the files of this room share. */
#include "lease/rows.h"

int ids_tx_(struct tx *tx, const struct sql *sql, const struct bind *binds, char ***ids,
	    struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };
	int r;

	strv_free(*ids);
	*ids = NULL;
	if (tx_query_(tx, &c, sql, binds, err) < 0)
		return -1;
	while ((r = cursor_next(&c, err)) > 0)
		strv_push(ids, xstrdup(col_text(&c, 0)));
	return r;
}

struct id_query {
	const struct sql *sql;
	const struct bind *binds;
	char ***ids;
};

static int ids_in_snapshot(struct tx *tx, void *arg, struct error *err)
{
	struct id_query *q = arg;

	return ids_tx_(tx, q->sql, q->binds, q->ids, err);
}

int ids_read_(struct db *db, const struct sql *sql, const struct bind *binds, char ***ids,
	      struct error *err)
{
	struct id_query q = { sql, binds, ids };

	return db_read(db, ids_in_snapshot, &q, err);
}

int number_tx_(struct tx *tx, const struct sql *sql, const struct bind *binds, int64_t *out,
	       struct error *err)
{
	_cleanup_cursor_ struct cursor c = { 0 };
	int r;

	*out = 0;
	if (tx_query_(tx, &c, sql, binds, err) < 0)
		return -1;
	r = cursor_next(&c, err);
	if (r > 0)
		*out = col_int(&c, 0);
	return r < 0 ? -1 : 0;
}
