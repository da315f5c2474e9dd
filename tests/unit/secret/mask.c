/*
 * Random output with values in every form, cut at random borders, on all channels, by servers that
 * die in the middle, against a search that sees everything at once. MASK_SEEDS=10000 tries so many
 * seeds, BERTH_SEED=n that one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <curl/curl.h>
#include <jansson.h>
#include <openssl/evp.h>
#include "base/buf.h"
#include "base/fault.h"
#include "base/text.h"
#include "secret/mask.h"

#define SEEDS 400
#define SEEDS_WITH_BUG 200
#define VALUES_MAX 4
#define OUTPUT_MAX 3000

/* xorshift64* */
static uint64_t next_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545F4914F6CDD1Du;
}

static size_t below(uint64_t *state, size_t n)
{
	return (size_t)(next_random(state) >> 33) % n;
}

/* Forms, by the code of others where there is some. */

struct texts {
	struct buf *items;
	size_t count;
};

static void texts_clear(struct texts *t)
{
	for (size_t i = 0; i < t->count; i++)
		buf_free(&t->items[i]);
	free(t->items);
	*t = (struct texts){ 0 };
}

static void texts_add(struct texts *t, const char *bytes, size_t len)
{
	t->items = xreallocarray(t->items, t->count + 1, sizeof(*t->items));
	t->items[t->count] = (struct buf){ 0 };
	buf_append(&t->items[t->count++], bytes, len);
}

static void add_percent(struct texts *t, const char *s, size_t len, const char *plain, bool lower)
{
	char *strict = curl_easy_escape(NULL, s, (int)len);
	_cleanup_buf_ struct buf out = { 0 };

	for (const char *p = strict; *p; p++) {
		unsigned code = 0;

		if (*p != '%') {
			buf_putc(&out, *p);
			continue;
		}
		code = (unsigned)(hex_digit(p[1]) << 4 | hex_digit(p[2]));
		if (code && strchr(plain, (int)code))
			buf_putc(&out, (char)code);
		else
			buf_printf(&out, lower ? "%%%02x" : "%%%02X", code);
		p += 2;
	}
	curl_free(strict);
	texts_add(t, out.data, out.len);
}

static void add_base64(struct texts *t, const char *s, size_t len, size_t before, bool url)
{
	_cleanup_free_ unsigned char *in = xcalloc(1, len + before),
				     *out = xcalloc(1, 4 * (len + before + 3));
	size_t first = (8 * before + 5) / 6, end = 8 * (before + len) / 6;

	memcpy(in + before, s, len);
	EVP_EncodeBlock(out, in, (int)(len + before));
	for (size_t i = 0; url && i < end; i++) {
		if (out[i] == '+' || out[i] == '/')
			out[i] = out[i] == '+' ? '-' : '_';
	}
	texts_add(t, (char *)out + first, end - first);
}

static void add_forms(struct texts *t, const char *s, size_t len)
{
	_cleanup_json_ json_t *string = json_stringn_nocheck(s, len);
	_cleanup_free_ char *quoted = json_dumps(string, JSON_ENCODE_ANY);

	texts_add(t, s, len);
	assert_non_null(quoted);
	texts_add(t, quoted + 1, strlen(quoted) - 2);
	add_percent(t, s, len, "", false);
	add_percent(t, s, len, "", true);
	add_percent(t, s, len, "/", false);
	add_percent(t, s, len, "!'()*", false);
	for (size_t i = 0; i < 6; i++)
		add_base64(t, s, len, i % 3, i >= 3);
}

static void add_value_forms(struct texts *t, const char *s, size_t len)
{
	size_t bare = len;

	while (bare > 0 && s[bare - 1] == '\n')
		bare--;
	if (len >= MASK_VALUE_MIN)
		add_forms(t, s, len);
	if (bare >= MASK_VALUE_MIN && bare != len)
		add_forms(t, s, bare);
	if (!memchr(s, '\n', bare))
		return;
	for (const char *p = s, *end; p < s + bare; p = end + 1) {
		end = memchr(p, '\n', (size_t)(s + bare - p));
		end = end ? end : s + bare;
		if (end - p >= MASK_LINE_MIN)
			add_forms(t, p, (size_t)(end - p));
	}
}

static void cover_all(const struct buf *raw, struct buf *expected, const char *piece, size_t len)
{
	const char *at = raw->data, *end = raw->data + raw->len;

	for (; (at = memmem(at, (size_t)(end - at), piece, len)); at++)
		memset(expected->data + (at - raw->data), '*', len);
}

/* What the log of one channel has to be. */
static void expect(const struct texts *forms, const struct buf *raw, struct buf *expected)
{
	buf_reset(expected);
	buf_append(expected, raw->data, raw->len);
	for (size_t i = 0; raw->len > 0 && i < forms->count; i++) {
		const char *s = forms->items[i].data;
		size_t len = forms->items[i].len;

		for (; len > MASK_PIECE_MAX; s += MASK_PIECE_MAX, len -= MASK_PIECE_MAX) {
			cover_all(raw, expected, s, MASK_PIECE_MAX);
			if (len - MASK_PIECE_MAX < MASK_LINE_MIN)
				break;
		}
		if (len > MASK_PIECE_MAX)
			cover_all(raw, expected, s + len - MASK_PIECE_MAX, MASK_PIECE_MAX);
		else if (len >= MASK_VALUE_MIN)
			cover_all(raw, expected, s, len);
	}
}

/* One trial */

struct byte {
	uint8_t channel;
	char byte;
};

struct trial {
	uint64_t random;
	struct texts values, forms;
	struct buf raw[MASK_CHANNELS]; /* what each channel is going to print */
	struct byte *output;           /* as the relay has it */
	size_t output_len;
	uint64_t acked;
	struct byte *log;
	size_t log_len;
	bool terminal;
};

static void make_values(struct trial *t)
{
	static const char letters[] = "abAB01+/\"\\ %=é~*\n";
	size_t count = 1 + below(&t->random, VALUES_MAX);

	for (size_t i = 0; i < count; i++) {
		/* Few letters make values that overlap themselves and each other. */
		size_t kinds = below(&t->random, 2) ? 2 + below(&t->random, 6) : 14;
		size_t len = 8 + below(&t->random, below(&t->random, 4) ? 20 : 240);
		bool lines = below(&t->random, 3) == 0;
		_cleanup_buf_ struct buf value = { 0 };

		while (value.len < len) {
			size_t pick = below(&t->random, kinds);

			if (lines && below(&t->random, 24) == 0)
				buf_putc(&value, '\n');
			else if (letters[pick] & 0x80)
				buf_puts(&value, "é");
			else
				buf_putc(&value, letters[pick]);
		}
		texts_add(&t->values, value.data, value.len);
		add_value_forms(&t->forms, value.data, value.len);
	}
}

static void make_output(struct trial *t, struct buf *out)
{
	size_t len = below(&t->random, OUTPUT_MAX);

	while (out->len < len) {
		const struct buf *form = &t->forms.items[below(&t->random, t->forms.count)];
		size_t part = below(&t->random, 3);

		/* A form, a part of one, or a few letters that values are made of. */
		if (form->len > 0 && part == 0)
			buf_append(out, form->data, form->len);
		else if (form->len > 0 && part == 1)
			buf_append(out, form->data, below(&t->random, form->len));
		else
			for (size_t n = below(&t->random, 30); n > 0; n--)
				buf_putc(out, "abAB01+/ \n"[below(&t->random, 10)]);
	}
}

static void make_trial(struct trial *t, uint64_t seed)
{
	size_t done[MASK_CHANNELS] = { 0 }, channels, total = 0;

	*t = (struct trial){ .random = seed * 0x9E3779B97F4A7C15u + 1 };
	t->terminal = below(&t->random, 5) == 0;
	make_values(t);
	channels = t->terminal ? 1 : MASK_CHANNELS;
	for (size_t i = 0; i < channels; i++) {
		make_output(t, &t->raw[i]);
		total += t->raw[i].len;
	}
	t->output = xcalloc(total + 1, sizeof(*t->output));
	t->log = xcalloc(total + 1, sizeof(*t->log));
	while (t->output_len < total) {
		size_t channel = below(&t->random, channels);
		size_t left = t->raw[channel].len - done[channel];
		size_t n = below(&t->random, below(&t->random, 3) ? 12 : 300);

		for (n = MIN_OF(n, left); n > 0; n--)
			t->output[t->output_len++] =
				(struct byte){ (uint8_t)channel,
					       t->raw[channel].data[done[channel]++] };
	}
}

static void free_trial(struct trial *t)
{
	texts_clear(&t->values);
	texts_clear(&t->forms);
	for (size_t i = 0; i < MASK_CHANNELS; i++)
		buf_free(&t->raw[i]);
	free(t->output);
	free(t->log);
}

static int append(void *arg, unsigned channel, const void *data, size_t len, struct error *err)
{
	struct trial *t = arg;

	(void)err;
	for (size_t i = 0; i < len; i++)
		t->log[t->log_len++] = (struct byte){ (uint8_t)channel, ((const char *)data)[i] };
	return 0;
}

static struct mask *mask_of(const struct trial *t)
{
	struct secret_text values[VALUES_MAX] = { 0 };
	struct mask *mask;

	for (size_t i = 0; i < t->values.count; i++)
		secret_text_set(&values[i], t->values.items[i].data, t->values.items[i].len);
	mask = mask_new(values, t->values.count);
	for (size_t i = 0; i < t->values.count; i++)
		secret_text_clear(&values[i]);
	return mask;
}

/* One server, until it dies or the output ends. False: bytes that it needs are gone. */
static bool serve(struct trial *t, struct mask *mask, bool dies, bool *ended)
{
	uint64_t back = t->log_len - MIN_OF(t->log_len, (size_t)MASK_LOOKBACK);
	uint64_t at = MAX_OF(t->acked, back);
	size_t stops = at + below(&t->random, t->output_len - at + 1);
	size_t known = t->log_len;
	struct mask_flow *flow;

	if (at > t->log_len)
		return false;
	flow = mask_flow_new(mask, t->terminal, at, t->log_len);
	while (at < t->output_len && (!dies || at < stops)) {
		char piece[400];
		size_t n = 0, want = 1 + below(&t->random, below(&t->random, 2) ? 8 : 400);
		unsigned channel = t->output[at].channel;

		while (n < want && at < t->output_len && t->output[at].channel == channel)
			piece[n++] = t->output[at++].byte;
		assert_int_equal(
			mask_flow_take(flow, channel, piece, n, (int64_t)at, append, t, NULL), 0);
		assert_true(t->log_len <= MAX_OF(at, known));
		if (below(&t->random, 3) == 0)
			t->acked = MAX_OF(t->acked, mask_flow_acked(flow));
	}
	*ended = !dies;
	if (*ended)
		assert_int_equal(mask_flow_flush(flow, append, t, NULL), 0);
	mask_flow_free(flow);
	return true;
}

/* On a terminal the first bytes of a value may have been shown. */
static bool is_as_expected(const struct trial *t, const struct buf *raw, const struct buf *expected,
			   const struct buf *log)
{
	if (log->len != raw->len)
		return false;
	if (!t->terminal)
		return log->len == 0 || memcmp(log->data, expected->data, log->len) == 0;
	for (size_t i = 0, shown = 0; i < log->len; i++) {
		if (log->data[i] != raw->data[i] && log->data[i] != '*')
			return false;
		if (log->data[i] != expected->data[i] && log->data[i] == '*')
			return false;
		shown = log->data[i] != expected->data[i] ? shown + 1 : 0;
		if (shown >= MASK_TERMINAL_MIN)
			return false;
	}
	return true;
}

/* What broke, or NULL. */
static const char *try_seed(uint64_t seed)
{
	_cleanup_(free_trial) struct trial t;
	_cleanup_mask_ struct mask *mask = NULL;
	_cleanup_buf_ struct buf log = { 0 }, expected = { 0 };
	bool ended = false;
	size_t deaths;

	make_trial(&t, seed);
	mask = mask_of(&t);
	if (!mask)
		return NULL;
	for (deaths = below(&t.random, 4); !ended; deaths -= deaths > 0) {
		if (!serve(&t, mask, deaths > 0, &ended))
			return "output was lost";
	}
	for (unsigned channel = 0; channel < MASK_CHANNELS; channel++) {
		buf_reset(&log);
		for (size_t i = 0; i < t.log_len; i++) {
			if (t.log[i].channel != t.output[i].channel)
				return "the order of the channels changed";
			if (t.log[i].channel == channel)
				buf_putc(&log, t.log[i].byte);
		}
		expect(&t.forms, &t.raw[channel], &expected);
		if (!is_as_expected(&t, &t.raw[channel], &expected, &log))
			return "a log is not what it should be";
	}
	return t.log_len == t.output_len ? NULL : "output is missing";
}

static void output_is_masked_however_it_is_cut(void **state)
{
	const char *only = getenv("BERTH_SEED"), *count = getenv("MASK_SEEDS");
	uint64_t first = only ? strtoull(only, NULL, 10) : 1;
	uint64_t seeds = only ? 1 : count ? strtoull(count, NULL, 10) : SEEDS;

	(void)state;
	for (uint64_t seed = first; seed < first + seeds; seed++) {
		const char *wrong = try_seed(seed);

		if (wrong)
			fail_msg("BERTH_SEED=%llu: %s", (unsigned long long)seed, wrong);
	}
}

static void a_bug_is_caught(const char *fence)
{
	_cleanup_free_ char *spec = xasprintf("%s:skip", fence);
	size_t caught = 0;

	assert_int_equal(fault_init(spec, NULL), 0);
	for (uint64_t seed = 1; seed <= SEEDS_WITH_BUG; seed++)
		caught += try_seed(seed) != NULL;
	assert_int_equal(fault_init(NULL, NULL), 0);
	if (caught == 0)
		fail_msg("%s is not missed", fence);
}

static void the_test_catches_a_mask_without_carry(void **state)
{
	(void)state;
	a_bug_is_caught("secret.mask.carry");
}

static void the_test_catches_streams_that_are_mixed(void **state)
{
	(void)state;
	a_bug_is_caught("secret.mask.streams");
}

static void the_test_catches_a_tail_that_is_acknowledged(void **state)
{
	(void)state;
	a_bug_is_caught("secret.mask.ack");
}

/* Cases by hand */

static struct mask *mask_for(const char *value)
{
	_cleanup_secret_ struct secret_text text = { 0 };

	secret_text_set(&text, value, strlen(value));
	return mask_new(&text, 1);
}

static int collect(void *arg, unsigned channel, const void *data, size_t len, struct error *err)
{
	(void)channel;
	(void)err;
	buf_append(arg, data, len);
	return 0;
}

static void take(struct mask_flow *flow, unsigned channel, const char *text, int64_t now,
		 struct buf *log)
{
	assert_int_equal(mask_flow_take(flow, channel, text, strlen(text), now, collect, log, NULL),
			 0);
}

static void values_shorter_than_eight_bytes_are_not_masked(void **state)
{
	(void)state;
	assert_null(mask_for("seven77"));
	assert_null(mask_for(""));
}

static void a_beginning_is_held_back_for_a_while(void **state)
{
	_cleanup_mask_ struct mask *mask = mask_for("open-sesame");
	struct mask_flow *flow = mask_flow_new(mask, false, 100, 100);
	_cleanup_buf_ struct buf log = { 0 };

	(void)state;
	take(flow, 0, "say open", 1000, &log);
	assert_string_equal(buf_str(&log), "say ");
	assert_int_equal(mask_flow_due(flow), 1000 + MASK_HOLD_MS);
	assert_int_equal(mask_flow_acked(flow), 104);
	/* Other channels wait behind it: the log has the order of the output. */
	take(flow, 1, "err", 1050, &log);
	assert_string_equal(buf_str(&log), "say ");
	assert_int_equal(mask_flow_flush(flow, collect, &log, NULL), 0);
	assert_string_equal(buf_str(&log), "say openerr");
	assert_int_equal(mask_flow_due(flow), 0);
	/* A later server would have to read it again, to know what follows. */
	assert_int_equal(mask_flow_acked(flow), 104);
	take(flow, 0, "-sesame.", 1200, &log);
	assert_string_equal(buf_str(&log), "say openerr*******.");
	assert_int_equal(mask_flow_acked(flow), 119);
	mask_flow_free(flow);
}

static void a_terminal_shows_three_bytes_at_once(void **state)
{
	_cleanup_mask_ struct mask *mask = mask_for("open-sesame");
	struct mask_flow *flow = mask_flow_new(mask, true, 0, 0);
	_cleanup_buf_ struct buf log = { 0 };

	(void)state;
	take(flow, 2, "o", 1, &log);
	take(flow, 2, "p", 2, &log);
	take(flow, 2, "e", 3, &log);
	assert_string_equal(buf_str(&log), "ope");
	take(flow, 2, "n", 4, &log);
	assert_string_equal(buf_str(&log), "ope");
	take(flow, 2, "-sesame", 5, &log);
	assert_string_equal(buf_str(&log), "ope********");
	mask_flow_free(flow);
}

static void a_later_server_masks_the_rest_of_a_value(void **state)
{
	_cleanup_mask_ struct mask *mask = mask_for("open-sesame");
	struct mask_flow *flow = mask_flow_new(mask, true, 0, 2);
	_cleanup_buf_ struct buf log = { 0 };

	(void)state;
	/* "op" is in the log of the server before; the relay still has it. */
	take(flow, 2, "open", 1, &log);
	take(flow, 2, "-sesame!", 1, &log);
	assert_string_equal(buf_str(&log), "*********!");
	mask_flow_free(flow);
}

static void a_hole_ends_what_was_begun(void **state)
{
	_cleanup_mask_ struct mask *mask = mask_for("open-sesame");
	struct mask_flow *flow = mask_flow_new(mask, false, 0, 0);
	_cleanup_buf_ struct buf log = { 0 };

	(void)state;
	take(flow, 0, "open", 1, &log);
	assert_int_equal(mask_flow_flush(flow, collect, &log, NULL), 0);
	mask_flow_skip(flow, 50);
	take(flow, 0, "-sesame", 1, &log);
	assert_string_equal(buf_str(&log), "open-sesame");
	assert_int_equal(mask_flow_acked(flow), 61);
	mask_flow_free(flow);
}

static void a_flood_on_one_channel_is_not_held_back_for_another(void **state)
{
	_cleanup_mask_ struct mask *mask = mask_for("open-sesame");
	struct mask_flow *flow = mask_flow_new(mask, false, 0, 0);
	_cleanup_buf_ struct buf log = { 0 };
	_cleanup_free_ char *flood = xcalloc(1, 70000);

	(void)state;
	memset(flood, 'x', 69999);
	take(flow, 0, "open", 1, &log);
	for (int i = 0; i < 100; i++)
		take(flow, 1, flood, 1, &log);
	assert_true(log.len > 5 * 1000 * 1000);
	/* And what was held back is so old that its relay need not keep it. */
	assert_true(mask_flow_acked(flow) > 5 * 1000 * 1000);
	mask_flow_free(flow);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(output_is_masked_however_it_is_cut),
		cmocka_unit_test(the_test_catches_a_mask_without_carry),
		cmocka_unit_test(the_test_catches_streams_that_are_mixed),
		cmocka_unit_test(the_test_catches_a_tail_that_is_acknowledged),
		cmocka_unit_test(values_shorter_than_eight_bytes_are_not_masked),
		cmocka_unit_test(a_beginning_is_held_back_for_a_while),
		cmocka_unit_test(a_terminal_shows_three_bytes_at_once),
		cmocka_unit_test(a_later_server_masks_the_rest_of_a_value),
		cmocka_unit_test(a_hole_ends_what_was_begun),
		cmocka_unit_test(a_flood_on_one_channel_is_not_held_back_for_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
