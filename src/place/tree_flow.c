#include "place/tree_flow.h"

#include <string.h>
#include "base/text.h"
#include "place/shell/shell_internal.h"

#define WINDOW (4u << 20)
/* So much of the relay's WIRE_TREE_CREDIT is used: what fits into the socket. */
#define ON_ITS_WAY (1u << 20)
/* One per 64 MiB of a file that is hashed: some terabytes. */
#define TICKS_MAX 65536
#define WINDOW_PORTION (WINDOW / 8)
/*
 * What goes along with a long record in its frame. Both together are less than half of what may be
 * on its way, so that credit for them comes whenever the relay has taken the other half.
 */
#define LEAD_MAX ((size_t)64 << 10)

static int reach(const struct place_ref *ref, const struct tree_request *r, struct link **link,
		 struct error *err)
{
	_cleanup_place_ struct open_place *shell = place_file_shell(ref);
	_cleanup_place_ struct open_place *place = NULL;
	uint64_t features;

	if (shell)
		return error_set(err, ERR_UNSUPPORTED_ENV,
				 "this place has no relay, so trees of files cannot be brought "
				 "there or back");
	place = place_file_reach(ref, boottime_ms() + FILE_WAIT_MS, link, err);
	if (!place || link_features(*link, &features, err) < 0)
		return -1;
	if (!(features & WIRE_FEATURE_TREES))
		return error_set(err, ERR_UNSUPPORTED_ENV,
				 "the relay of this place is of an older version that cannot "
				 "move trees of files: release the place and acquire it anew");
	*r->root_field = place_file_path(place, r->root, err);
	return *r->root_field ? 0 : -1;
}

int tree_flow_open(struct tree_flow *f, const struct place_ref *ref, const struct tree_request *r,
		   struct error *err)
{
	_cleanup_link_ struct link *link = NULL;
	_cleanup_free_ char *root = NULL;

	f->moved_ms = boottime_ms();
	*r->root_field = NULL;
	*r->credit_field = WINDOW;
	if (reach(ref, r, &link, err) < 0)
		return -1;
	root = (char *)(uintptr_t)*r->root_field;
	f->stream = link_open(link, r->type, r->msg, WINDOW, err);
	if (!f->stream)
		return -1;
	stream_grant(f->stream, ON_ITS_WAY);
	return 0;
}

void tree_flow_close(struct tree_flow *f)
{
	/* After DONE only the end of the stream follows. */
	if (f->stream && !f->done && link_is_up(stream_link(f->stream)))
		stream_send(f->stream, WIRE_RESET, &(struct wire_reset){}, NULL);
	stream_close(f->stream);
	f->stream = NULL;
	buf_free(&f->out);
	buf_free(&f->partial);
}

int tree_flow_violated(struct tree_flow *f, struct error *err, const char *why)
{
	if (!f->stream)
		return error_set(err, ERR_PROTOCOL, "%s", why);
	return link_violated(stream_link(f->stream), err, "%s", why);
}

int tree_flow_entry(struct tree_flow *f, const struct record *record, struct tree_entry *entry,
		    struct error *err)
{
	ssize_t n = tree_entry_decode(record->payload, record->length, entry, NULL);

	if (n != (ssize_t)record->length)
		return tree_flow_violated(f, err, "an entry of a tree is malformed");
	return 0;
}

void tree_flow_put_entry(struct tree_flow *f, enum record_kind kind, const struct tree_entry *entry)
{
	size_t start = wire_record_begin(&f->out, kind);

	tree_entry_encode(&f->out, entry);
	wire_record_end(&f->out, start);
}

/* Receiving */

static int take_failure(const struct record *record, struct error *err)
{
	_cleanup_buf_ struct buf text = { 0 };

	utf8_repair(&text, (const char *)record->payload + 8, record->length - 8);
	return error_set(err, wire_error_meaning(get_le32(record->payload)), "%s", buf_str(&text));
}

static int take_record(struct tree_flow *f, const struct record *record, struct error *err)
{
	if (record->kind != RECORD_TICK)
		f->ticks = 0;
	switch (record->kind) {
	case RECORD_TICK:
		if (++f->ticks > TICKS_MAX)
			return tree_flow_violated(f, err, "it sent an endless record");
		return 0;
	case RECORD_DONE:
		f->done = true;
		return 0;
	case RECORD_FAILED:
		return take_failure(record, err);
	case RECORD_ENTRY:
	case RECORD_NONE:
	case RECORD_CONTENT:
	case RECORD_HOLE:
	case RECORD_ENDED:
	case RECORD_CHANGED:
		return f->take(f->arg, record, err);
	default:
		return tree_flow_violated(f, err, "a record that only we send");
	}
}

/* Content is handed on as it comes, whatever its record's length. */
static int take_content(struct tree_flow *f, const uint8_t **data, size_t *len, struct error *err)
{
	struct record piece = {
		.kind = RECORD_CONTENT,
		.payload = *data,
		.length = (uint32_t)MIN_OF(*len, (size_t)f->content_left),
	};

	f->content_left -= piece.length;
	*data += piece.length;
	*len -= piece.length;
	return take_record(f, &piece, err);
}

/* Moves bytes into `partial` until it has so many; false when there were not enough. */
static bool gather(struct tree_flow *f, size_t wanted, const uint8_t **data, size_t *len)
{
	size_t n = MIN_OF(*len, wanted - f->partial.len);

	buf_append(&f->partial, *data, n);
	*data += n;
	*len -= n;
	return f->partial.len == wanted;
}

/* A record of which only the beginning had come. 1: it is complete and taken, or content begins. */
static int complete_partial(struct tree_flow *f, const uint8_t **data, size_t *len,
			    struct error *err)
{
	struct record record;
	int rc;

	if (f->partial.len < RECORD_HEADER_SIZE && !gather(f, RECORD_HEADER_SIZE, data, len))
		return 0;
	if (wire_record_parse_header((const uint8_t *)f->partial.data, &record, err) < 0)
		return tree_flow_violated(f, err, "it sent an invalid record");
	if (record.kind == RECORD_CONTENT) {
		f->content_left = record.length;
		buf_reset(&f->partial);
		return 1;
	}
	if (!gather(f, RECORD_HEADER_SIZE + record.length, data, len))
		return 0;
	record.payload = (const uint8_t *)f->partial.data + RECORD_HEADER_SIZE;
	rc = take_record(f, &record, err);
	buf_reset(&f->partial);
	return rc < 0 ? -1 : 1;
}

int tree_flow_feed(struct tree_flow *f, const uint8_t *data, size_t len, struct error *err)
{
	while (len > 0) {
		struct record record;
		size_t used;
		int r = 0;

		if (f->done)
			return tree_flow_violated(f, err, "more behind the last record");
		if (f->content_left > 0) {
			if (take_content(f, &data, &len, err) < 0)
				return -1;
			continue;
		}
		if (f->partial.len == 0)
			r = wire_record_parse(data, len, &record, &used, err);
		if (r < 0)
			return tree_flow_violated(f, err, "it sent an invalid record");
		if (r == 0) {
			if (complete_partial(f, &data, &len, err) < 0)
				return -1;
			continue;
		}
		if (take_record(f, &record, err) < 0)
			return -1;
		data += used;
		len -= used;
	}
	return 0;
}

static int take_item(struct tree_flow *f, const struct item *item, struct error *err)
{
	_cleanup_wire_message_ struct wire_message m = { 0 };

	if (item->type != WIRE_DATA) {
		if (item_decode(stream_link(f->stream), item, &m, err) < 0)
			return -1;
		if (m.type == WIRE_ERROR)
			return wire_error_take(&m.error, err);
		return tree_flow_violated(f, err, "a message among records");
	}
	if (tree_flow_feed(f, item->data, item->len, err) < 0)
		return -1;
	if ((item->flags & WIRE_END) && !f->done)
		return tree_flow_violated(f, err, "the records ended before the last");
	f->owed += item->len;
	if (f->owed >= WINDOW_PORTION) {
		/* A link that is down is noticed by who waits for more. */
		stream_allow(f->stream, f->owed, NULL);
		f->owed = 0;
	}
	return 0;
}

/* Turns */

size_t tree_flow_backlog(const struct tree_flow *f)
{
	return f->out.len - f->out_pos;
}

static int send_some(struct tree_flow *f, struct error *err)
{
	while (tree_flow_backlog(f) > 0) {
		ssize_t n = stream_data(f->stream, f->out.data + f->out_pos, tree_flow_backlog(f),
					false, err);

		if (n < 0)
			return -1;
		if (n == 0)
			break;
		f->out_pos += (size_t)n;
		f->moved_ms = boottime_ms();
	}
	if (tree_flow_backlog(f) > 0) {
		if (f->out_pos > f->out.len / 2) {
			buf_consume(&f->out, f->out_pos);
			f->out_pos = 0;
		}
		return 0;
	}
	buf_reset(&f->out);
	f->out_pos = 0;
	return 0;
}

static int take_some(struct tree_flow *f, bool wait, struct error *err)
{
	struct item *items = NULL;
	int64_t deadline = wait ? f->moved_ms + FILE_WAIT_MS : 0;
	int got = stream_take(f->stream, deadline, &items), rc = 0;

	if (got < 0)
		return error_set(err, ERR_UNAVAILABLE, "the connection to the place broke");
	if (got == 0 && wait && boottime_ms() >= deadline)
		return error_set(err, ERR_TIMEOUT,
				 "the place did not move a byte of the tree for %d s",
				 FILE_WAIT_MS / 1000);
	if (items)
		f->moved_ms = boottime_ms();
	for (struct item *i = items; i && rc == 0; i = i->next)
		rc = take_item(f, i, err);
	items_free(&items);
	return rc;
}

int tree_flow_turn(struct tree_flow *f, bool wait, struct error *err)
{
	/* Why it does not take more, the relay may have said. */
	if (send_some(f, NULL) < 0 && take_some(f, false, err) < 0)
		return -1;
	if (take_some(f, wait && !f->done, err) < 0)
		return -1;
	if (f->done && tree_flow_backlog(f) > 0)
		return tree_flow_violated(f, err, "done before it was asked for everything");
	return 0;
}

int tree_flow_push(struct tree_flow *f, struct error *err)
{
	if (tree_flow_turn(f, false, err) < 0)
		return -1;
	while (tree_flow_backlog(f) > 0)
		if (tree_flow_turn(f, true, err) < 0)
			return -1;
	return 0;
}

int tree_flow_push_long(struct tree_flow *f, const void *data, size_t len, struct error *err)
{
	if (tree_flow_backlog(f) > LEAD_MAX && tree_flow_push(f, err) < 0)
		return -1;
	if (take_some(f, false, err) < 0)
		return -1;
	while (stream_data_led(f->stream, f->out.data + f->out_pos, tree_flow_backlog(f), data, len,
			       NULL) <= 0) {
		if (f->done)
			return tree_flow_violated(f, err, "done before it had everything");
		/* A connection that is down is noticed here, behind what the relay still said. */
		if (take_some(f, true, err) < 0)
			return -1;
	}
	f->moved_ms = boottime_ms();
	buf_reset(&f->out);
	f->out_pos = 0;
	return 0;
}

int tree_flow_finish(struct tree_flow *f, struct error *err)
{
	while (!f->done)
		if (tree_flow_turn(f, true, err) < 0)
			return -1;
	return 0;
}
