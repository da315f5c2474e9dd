/*
 * The queue holds a byte that says what is waited for, then the record of the entry. Answers come
 * in the order of putting, so only the front is ever looked at.
 */
#include <string.h>
#include "workspace/stage_internal.h"

enum waits { WAITS_NOT = 'k', WAITS_ANSWER = 'w', WAITS_DROP = 'd' };

static void push(struct send_queue *o, enum waits waits, const struct tree_entry *entry)
{
	buf_putc(&o->queue, (char)waits);
	tree_entry_encode(&o->queue, entry);
}

bool send_queue_is_empty(const struct send_queue *o)
{
	return o->at == o->queue.len;
}

/* The front's entry points into the queue: good until the next push. */
static enum waits front(const struct send_queue *o, struct tree_entry *entry, size_t *size)
{
	ssize_t n =
		tree_entry_decode(o->queue.data + o->at + 1, o->queue.len - o->at - 1, entry, NULL);

	*size = (size_t)n + 1;
	return (enum waits)o->queue.data[o->at];
}

static void pop(struct send_queue *o, size_t size)
{
	o->at += size;
	if (o->at == o->queue.len || o->at > o->queue.cap / 2) {
		buf_consume(&o->queue, o->at);
		o->at = 0;
	}
}

static int emit(struct send_queue *o, const struct tree_entry *entry, struct error *err)
{
	return o->place ? manifest_add(o->place, entry, err) : 0;
}

/* Entries at the front that wait for nothing come out. */
static int drain(struct send_queue *o, struct error *err)
{
	while (!send_queue_is_empty(o)) {
		struct tree_entry entry;
		size_t size;

		if (front(o, &entry, &size) != WAITS_NOT)
			return 0;
		if (emit(o, &entry, err) < 0)
			return -1;
		pop(o, size);
	}
	return 0;
}

int send_queue_keep(struct send_queue *o, const struct tree_entry *entry, struct error *err)
{
	if (send_queue_is_empty(o))
		return emit(o, entry, err);
	push(o, WAITS_NOT, entry);
	return 0;
}

void send_queue_expect(struct send_queue *o, const struct tree_entry *entry)
{
	push(o, WAITS_ANSWER, entry);
}

void send_queue_open(struct send_queue *o, const char *path)
{
	o->open = true;
	o->answered = false;
	o->open_path = path;
}

void send_queue_forget(struct send_queue *o)
{
	o->open = false;
}

/* What the place's file is like, with what we know of its content and want of its mode. */
static void take_identity(struct tree_entry *entry, const struct tree_entry *answer)
{
	entry->mtime_ns = answer->mtime_ns;
	entry->ctime_ns = answer->ctime_ns;
	entry->dev = answer->dev;
	entry->ino = answer->ino;
	entry->links = answer->links;
	entry->mode &= 0777;
}

int send_queue_close(struct send_queue *o, const struct tree_entry *entry, bool drop,
		     struct error *err)
{
	struct tree_entry own = *entry;

	o->open = false;
	own.flags &= TREE_HAS_HASH;
	if (!o->answered) {
		push(o, drop ? WAITS_DROP : WAITS_ANSWER, &own);
		return 0;
	}
	take_identity(&own, &o->answer);
	return drop ? 0 : emit(o, &own, err);
}

int send_queue_written(void *arg, const struct tree_entry *answer, struct error *err)
{
	struct send_queue *o = arg;
	struct tree_entry entry;
	size_t size;

	if (send_queue_is_empty(o)) {
		if (!o->open || o->answered || strcmp(o->open_path, answer->path) != 0)
			return error_set(err, ERR_PROTOCOL,
					 "the place wrote a file that was not sent");
		o->answer = *answer;
		o->answered = true;
		return 0;
	}

	enum waits waits = front(o, &entry, &size);

	if (waits == WAITS_NOT || entry.path_len != answer->path_len ||
	    memcmp(entry.path, answer->path, entry.path_len) != 0)
		return error_set(err, ERR_PROTOCOL, "the place wrote a file that was not sent");
	take_identity(&entry, answer);
	if (waits == WAITS_ANSWER && emit(o, &entry, err) < 0)
		return -1;
	pop(o, size);
	return drain(o, err);
}

void send_queue_free(struct send_queue *o)
{
	manifest_abandon(o->place);
	buf_free(&o->queue);
	*o = (struct send_queue){ 0 };
}
