#include "workspace/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include "base/buf.h"
#include "base/fd.h"
#include "base/sha256.h"
#include "workspace/results.h"

/* u32 length of the payload | u32 check | payload */
#define HEAD 8
#define RECORD_MAX 65536
/* 1,000,000 changes with two long paths each, and room for conflicts. */
#define JOURNAL_MAX ((size_t)4 << 30)

enum record_kind { RECORD_INTENT = 1, RECORD_OUTCOME, RECORD_STAGING, RECORD_REDIRECT };

/* Every kind has the same shape; what a kind does not use is 0 or empty. */
struct record {
	uint8_t kind;
	uint32_t number, act, fate;
	uint64_t dev, ino;
	const char *one, *two; /* NULL: none */
};

/* Where the last record of each sort is in `text`, plus 1. */
struct mark {
	size_t intent, outcome;
};

struct journal {
	int fd;
	struct buf text; /* everything, synced or not */
	size_t synced;
	uint32_t count;
	struct mark *marks;
	size_t staging; /* plus 1 */
	size_t *redirects;
	size_t redirect_count;
};

static void put_u32(struct buf *b, uint32_t v)
{
	buf_append(b, &v, sizeof(v));
}

static void put_u64(struct buf *b, uint64_t v)
{
	buf_append(b, &v, sizeof(v));
}

/* Length plus 1, so that "" and NULL differ. */
static void put_text(struct buf *b, const char *s)
{
	size_t len = s ? strlen(s) : 0;

	put_u32(b, s ? (uint32_t)len + 1 : 0);
	if (s)
		buf_append(b, s, len + 1);
}

static uint32_t checksum(const void *data, size_t len)
{
	uint8_t sum[SHA256_SIZE];
	uint32_t v;

	sha256_once(data, len, sum);
	memcpy(&v, sum, sizeof(v));
	return v;
}

struct reader {
	const char *at;
	size_t left;
	bool bad;
};

static void take(struct reader *r, void *out, size_t len)
{
	if (r->left < len) {
		r->bad = true;
		memset(out, 0, len);
		return;
	}
	memcpy(out, r->at, len);
	r->at += len;
	r->left -= len;
}

static const char *take_text(struct reader *r)
{
	uint32_t size;
	const char *s = r->at + sizeof(size);

	take(r, &size, sizeof(size));
	if (r->bad || !size)
		return NULL;
	if (r->left < size || s[size - 1] != '\0') {
		r->bad = true;
		return NULL;
	}
	r->at += size;
	r->left -= size;
	return s;
}

/* The payload at an offset; false when it breaks the form. */
static bool parse(const struct journal *j, size_t at, uint32_t len, struct record *out)
{
	struct reader r = { .at = j->text.data + at + HEAD, .left = len };

	take(&r, &out->kind, sizeof(out->kind));
	take(&r, &out->number, sizeof(out->number));
	take(&r, &out->act, sizeof(out->act));
	take(&r, &out->fate, sizeof(out->fate));
	take(&r, &out->dev, sizeof(out->dev));
	take(&r, &out->ino, sizeof(out->ino));
	out->one = take_text(&r);
	out->two = take_text(&r);
	return !r.bad && !r.left;
}

/* How long the record at an offset is, or 0 when it is not whole. */
static size_t record_at(const struct journal *j, size_t at, struct record *out)
{
	uint32_t len, check;

	if (j->text.len - at < HEAD)
		return 0;
	memcpy(&len, j->text.data + at, sizeof(len));
	memcpy(&check, j->text.data + at + sizeof(len), sizeof(check));
	if (len > RECORD_MAX || j->text.len - at - HEAD < len ||
	    checksum(j->text.data + at + HEAD, len) != check)
		return 0;
	return parse(j, at, len, out) ? HEAD + len : 0;
}

/* One that was checked when it came. */
static void record_known(const struct journal *j, size_t at, struct record *out)
{
	uint32_t len;

	memcpy(&len, j->text.data + at, sizeof(len));
	parse(j, at, len, out);
}

static void forget_intents(struct journal *j)
{
	for (uint32_t i = 0; i < j->count; i++)
		j->marks[i].intent = 0;
}

/* False: a record of another journal, or of nobody. */
static bool take_note(struct journal *j, const struct record *record, size_t at)
{
	struct mark *mark = record->number < j->count ? &j->marks[record->number] : NULL;

	switch (record->kind) {
	case RECORD_INTENT:
		if (!mark)
			return false;
		*mark = (struct mark){ .intent = at + 1 };
		return true;
	case RECORD_OUTCOME:
		if (!mark)
			return false;
		*mark = (struct mark){ .outcome = at + 1 };
		return true;
	case RECORD_STAGING:
		if (!record->one)
			return false;
		j->staging = at + 1;
		forget_intents(j);
		return true;
	case RECORD_REDIRECT:
		if (!record->one || !record->two)
			return false;
		j->redirects =
			xreallocarray(j->redirects, j->redirect_count + 1, sizeof(*j->redirects));
		j->redirects[j->redirect_count++] = at;
		return true;
	default:
		return false;
	}
}

static void add(struct journal *j, const struct record *record)
{
	size_t at = j->text.len;
	uint32_t len, check;

	put_u32(&j->text, 0);
	put_u32(&j->text, 0);
	buf_append(&j->text, &record->kind, sizeof(record->kind));
	put_u32(&j->text, record->number);
	put_u32(&j->text, record->act);
	put_u32(&j->text, record->fate);
	put_u64(&j->text, record->dev);
	put_u64(&j->text, record->ino);
	put_text(&j->text, record->one);
	put_text(&j->text, record->two);
	len = (uint32_t)(j->text.len - at - HEAD);
	check = checksum(j->text.data + at + HEAD, len);
	memcpy(j->text.data + at, &len, sizeof(len));
	memcpy(j->text.data + at + sizeof(len), &check, sizeof(check));
	take_note(j, record, at);
}

void journal_add_intent(struct journal *j, const struct journal_intent *intent)
{
	add(j, &(struct record){ .kind = RECORD_INTENT,
				 .number = intent->number,
				 .act = intent->act,
				 .fate = intent->fate,
				 .dev = intent->dev,
				 .ino = intent->ino,
				 .one = intent->path,
				 .two = intent->expected });
}

void journal_add_outcome(struct journal *j, const struct journal_outcome *outcome)
{
	add(j, &(struct record){ .kind = RECORD_OUTCOME,
				 .number = outcome->number,
				 .fate = outcome->fate,
				 .one = outcome->beside,
				 .two = outcome->reason });
}

void journal_add_staging(struct journal *j, const char *path, uint64_t dev, uint64_t ino)
{
	add(j, &(struct record){ .kind = RECORD_STAGING, .dev = dev, .ino = ino, .one = path });
}

void journal_add_redirect(struct journal *j, const char *path, const char *beside)
{
	add(j, &(struct record){ .kind = RECORD_REDIRECT, .one = path, .two = beside });
}

int journal_sync(struct journal *j, struct error *err)
{
	if (j->synced == j->text.len)
		return 0;
	if (fd_pwrite_all(j->fd, j->text.data + j->synced, j->text.len - j->synced,
			  (off_t)j->synced, err) < 0)
		return error_wrap(err, "the journal of the run's results");
	if (fdatasync(j->fd) < 0)
		return error_errno(err, errno, "sync the journal of the run's results");
	j->synced = j->text.len;
	return 0;
}

bool journal_intent(const struct journal *j, uint32_t number, struct journal_intent *out)
{
	struct record record;

	if (number >= j->count || !j->marks[number].intent)
		return false;
	record_known(j, j->marks[number].intent - 1, &record);
	*out = (struct journal_intent){
		.number = number,
		.act = (enum journal_act)record.act,
		.fate = record.fate,
		.dev = record.dev,
		.ino = record.ino,
		.expected = record.two,
		.path = record.one,
	};
	return true;
}

bool journal_outcome(const struct journal *j, uint32_t number, struct journal_outcome *out)
{
	struct record record;

	if (number >= j->count || !j->marks[number].outcome)
		return false;
	record_known(j, j->marks[number].outcome - 1, &record);
	*out = (struct journal_outcome){
		.number = number, .fate = record.fate, .beside = record.one, .reason = record.two
	};
	return true;
}

const char *journal_staging(const struct journal *j, uint64_t *dev, uint64_t *ino)
{
	struct record record;

	if (!j->staging)
		return NULL;
	record_known(j, j->staging - 1, &record);
	*dev = record.dev;
	*ino = record.ino;
	return record.one;
}

const char *journal_redirect(const struct journal *j, const char *path, size_t len)
{
	struct record record;

	for (size_t i = j->redirect_count; i--;) {
		record_known(j, j->redirects[i], &record);
		if (strlen(record.one) == len && memcmp(record.one, path, len) == 0)
			return record.two;
	}
	return NULL;
}

void journal_retry(struct journal *j, uint32_t fate)
{
	struct journal_outcome outcome;

	for (uint32_t i = 0; i < j->count; i++) {
		if (journal_outcome(j, i, &outcome) && outcome.fate == fate)
			j->marks[i].outcome = 0;
	}
}

static int load(struct journal *j, bool writable, struct error *err)
{
	struct record record;
	size_t at = 0, len;

	if (fd_read_all(j->fd, &j->text, JOURNAL_MAX, err) < 0)
		return error_wrap(err, "the journal of the run's results");
	while ((len = record_at(j, at, &record)) && take_note(j, &record, at))
		at += len;
	if (at == j->text.len)
		return 0;
	if (writable && ftruncate(j->fd, (off_t)at) < 0)
		return error_errno(err, errno, "cut the journal of the run's results");
	j->text.len = at;
	return 0;
}

static int open_file(struct journal *j, int run_fd, bool writable, struct error *err)
{
	j->fd = openat(run_fd, RESULTS_JOURNAL,
		       (writable ? O_RDWR | O_CREAT : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (j->fd < 0 && !writable && errno == ENOENT)
		return 0;
	if (j->fd < 0)
		return error_errno(err, errno, "open the journal of the run's results");
	if (load(j, writable, err) < 0)
		return -1;
	j->synced = j->text.len;
	return writable ? dir_sync(run_fd, err) : 0;
}

int journal_open(int run_fd, uint32_t count, bool writable, struct journal **out, struct error *err)
{
	struct journal *j = xcalloc(1, sizeof(*j));

	j->fd = -1;
	j->count = count;
	j->marks = xcalloc(count ? count : 1, sizeof(*j->marks));
	if (open_file(j, run_fd, writable, err) < 0) {
		journal_close(j);
		return -1;
	}
	*out = j;
	return 0;
}

void journal_close(struct journal *j)
{
	if (!j)
		return;
	close_fdp(&j->fd);
	buf_free(&j->text);
	free(j->marks);
	free(j->redirects);
	free(j);
}
