#include "filetree/ignore_pattern.h"

#include <string.h>
#include "base/mem.h"

struct parser {
	const char *at, *end, *start;
	struct ignore_pattern *p;
};

static bool is_special(char c)
{
	return c == '*' || c == '?' || c == '[' || c == '\\';
}

static size_t literal_length(const char *s, size_t len)
{
	size_t n = 0;

	while (n < len && !is_special(s[n]))
		n++;
	return n;
}

static struct ignore_step *add_step(struct ignore_pattern *p, enum ignore_op op)
{
	p->steps[p->step_count] = (struct ignore_step){ .op = (uint8_t)op };
	return &p->steps[p->step_count++];
}

static void set_add(uint64_t set[4], unsigned from, unsigned to)
{
	for (unsigned c = from; c <= to; c++)
		set[c / 64] |= 1ULL << c % 64;
}

struct named_class {
	const char *name;
	uint8_t ranges[8][2]; /* ended by 0, 0 */
};

/* ASCII, whatever the locale. space is what git counts as one. */
static const struct named_class named_classes[] = {
	{ "alnum", { { '0', '9' }, { 'A', 'Z' }, { 'a', 'z' } } },
	{ "alpha", { { 'A', 'Z' }, { 'a', 'z' } } },
	{ "blank", { { '\t', '\t' }, { ' ', ' ' } } },
	{ "cntrl", { { 1, 31 }, { 127, 127 } } },
	{ "digit", { { '0', '9' } } },
	{ "graph", { { '!', '~' } } },
	{ "lower", { { 'a', 'z' } } },
	{ "print", { { ' ', '~' } } },
	{ "punct", { { '!', '/' }, { ':', '@' }, { '[', '`' }, { '{', '~' } } },
	{ "space", { { '\t', '\n' }, { '\r', '\r' }, { ' ', ' ' } } },
	{ "upper", { { 'A', 'Z' } } },
	{ "xdigit", { { '0', '9' }, { 'A', 'F' }, { 'a', 'f' } } },
};

static bool add_named_class(uint64_t set[4], const char *name, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(named_classes); i++) {
		const struct named_class *c = &named_classes[i];

		if (strlen(c->name) != len || memcmp(c->name, name, len) != 0)
			continue;
		for (size_t k = 0; c->ranges[k][0]; k++)
			set_add(set, c->ranges[k][0], c->ranges[k][1]);
		return true;
	}
	return false;
}

/* At "[:" inside brackets. 1: it was a class, 0: two ordinary characters, -1: no such class. */
static int parse_named_class(struct parser *in, uint64_t set[4])
{
	const char *name = in->at + 2;
	const char *close = memchr(name, ']', (size_t)(in->end - name));

	if (!close)
		return -1;
	if (close == name || close[-1] != ':')
		return 0;
	if (!add_named_class(set, name, (size_t)(close - 1 - name)))
		return -1;
	in->at = close + 1;
	return 1;
}

/* One character of a bracket, perhaps escaped. */
static bool take_char(struct parser *in, unsigned *c)
{
	if (in->at < in->end && *in->at == '\\')
		in->at++;
	if (in->at >= in->end)
		return false;
	*c = (unsigned char)*in->at++;
	return true;
}

/* Behind "[" and "[!": up to the closing bracket, which stands for itself when it comes first. */
static bool parse_set(struct parser *in, uint64_t set[4])
{
	unsigned previous = 0, c;

	for (bool first = true;; first = false) {
		if (in->at >= in->end)
			return false;
		if (*in->at == ']' && !first) {
			in->at++;
			return true;
		}
		if (*in->at == '-' && previous && in->at + 1 < in->end && in->at[1] != ']') {
			in->at++;
			if (!take_char(in, &c))
				return false;
			set_add(set, previous, c);
			previous = 0;
			continue;
		}
		if (*in->at == '[' && in->at + 1 < in->end && in->at[1] == ':') {
			int named = parse_named_class(in, set);

			if (named < 0)
				return false;
			if (named > 0) {
				previous = 0;
				continue;
			}
		}
		if (!take_char(in, &c))
			return false;
		set_add(set, c, c);
		previous = c;
	}
}

static bool parse_brackets(struct parser *in)
{
	struct ignore_pattern *p = in->p;
	uint64_t set[4] = { 0 };
	bool negated = in->at < in->end && (*in->at == '!' || *in->at == '^');

	if (negated)
		in->at++;
	if (!parse_set(in, set))
		return false;
	if (negated)
		for (size_t i = 0; i < 4; i++)
			set[i] = ~set[i];
	p->sets = xreallocarray(p->sets, p->set_count + 1, sizeof(*p->sets));
	memcpy(p->sets[p->set_count], set, sizeof(set));
	add_step(p, OP_CLASS)->set = (uint16_t)p->set_count++;
	return true;
}

/* Two or more stars alone between slashes go deep; any other stars are one. */
static void parse_stars(struct parser *in)
{
	const char *first = in->at - 1;

	while (in->at < in->end && *in->at == '*')
		in->at++;

	size_t left = (size_t)(in->end - in->at);
	bool opens = first == in->start || first[-1] == '/';
	bool closes = left == 0 || *in->at == '/' || (left > 1 && memcmp(in->at, "\\/", 2) == 0);

	if (in->at - first < 2 || !opens || !closes || in->p->by_name) {
		add_step(in->p, OP_STAR);
		return;
	}
	if (left > 0 && *in->at == '/')
		add_step(in->p, OP_SKIP);
	add_step(in->p, OP_DEEP);
}

static bool parse_steps(struct ignore_pattern *p, const char *text, size_t len)
{
	struct parser in = { .at = text, .end = text + len, .start = text, .p = p };

	if (len > IGNORE_STEPS_MAX)
		return false;
	p->steps = xcalloc(len, sizeof(*p->steps)); /* none takes more than one per byte */
	while (in.at < in.end) {
		char c = *in.at++;

		switch (c) {
		case '*':
			parse_stars(&in);
			break;
		case '?':
			add_step(p, OP_ANY);
			break;
		case '[':
			if (!parse_brackets(&in))
				return false;
			break;
		case '\\':
			if (in.at >= in.end)
				return false;
			add_step(p, OP_BYTE)->byte = (uint8_t)*in.at++;
			break;
		default:
			add_step(p, OP_BYTE)->byte = (uint8_t)c;
			break;
		}
	}
	return true;
}

/* Blanks at the end do not count unless a backslash is before them. */
static size_t trimmed_length(const char *line, size_t len)
{
	size_t kept = 0;

	for (size_t i = 0; i < len; i++) {
		if (line[i] == ' ')
			continue;
		if (line[i] == '\\' && ++i >= len)
			return len;
		kept = i + 1;
	}
	return kept;
}

bool ignore_pattern_parse(struct ignore_pattern *p, const char *line, size_t len)
{
	*p = (struct ignore_pattern){ 0 };
	if (len > 0 && line[len - 1] == '\r')
		len--;
	len = strnlen(line, len); /* as git, for which a line is a C string */
	if (len == 0 || line[0] == '#')
		return false;
	len = trimmed_length(line, len);
	if (len > 0 && line[0] == '!') {
		p->negated = true;
		line++;
		len--;
	}
	if (len > 0 && line[len - 1] == '/') {
		p->dir_only = true;
		len--;
	}
	p->by_name = !memchr(line, '/', len);
	if (!p->by_name && line[0] == '/') {
		line++;
		len--;
	}
	if (len == 0) {
		p->never = true;
		return true;
	}
	if (p->by_name && line[0] == '*' && literal_length(line + 1, len - 1) == len - 1) {
		p->by_suffix = true;
		p->text = xstrndup(line + 1, len - 1);
		p->text_len = len - 1;
		return true;
	}

	/* Names are matched from their first character, paths from behind the literal part. */
	size_t literal = literal_length(line, len);

	p->text = xstrndup(line, literal);
	p->text_len = literal;
	p->never = literal < len && !parse_steps(p, line + literal, len - literal);
	return true;
}

void ignore_pattern_clear(struct ignore_pattern *p)
{
	free(p->text);
	free(p->steps);
	free(p->sets);
	*p = (struct ignore_pattern){ 0 };
}

/* The states of the matcher: bit i says that the steps before i have matched what was read. */
#define STATE_WORDS (IGNORE_STEPS_MAX / 64 + 1)

struct states {
	uint64_t bits[STATE_WORDS];
};

/* Entering state i enters those reachable without reading. */
static void enter(const struct ignore_pattern *p, struct states *s, size_t i)
{
	for (;; i++) {
		uint64_t bit = 1ULL << i % 64;

		if (s->bits[i / 64] & bit)
			return;
		s->bits[i / 64] |= bit;
		if (i >= p->step_count)
			return;
		switch ((enum ignore_op)p->steps[i].op) {
		case OP_SKIP:
			enter(p, s, i + 3); /* behind the stars and the slash */
			break;
		case OP_STAR:
		case OP_DEEP:
			break;
		case OP_BYTE:
		case OP_ANY:
		case OP_CLASS:
			return;
		}
	}
}

static void advance(const struct ignore_pattern *p, size_t i, unsigned char c, struct states *next)
{
	const struct ignore_step *step = &p->steps[i];

	switch ((enum ignore_op)step->op) {
	case OP_BYTE:
		if (c == step->byte)
			enter(p, next, i + 1);
		break;
	case OP_ANY:
		if (c != '/')
			enter(p, next, i + 1);
		break;
	case OP_CLASS:
		if (c != '/' && (p->sets[step->set][c / 64] >> c % 64 & 1))
			enter(p, next, i + 1);
		break;
	case OP_STAR:
		if (c != '/')
			enter(p, next, i);
		break;
	case OP_DEEP:
		enter(p, next, i);
		break;
	case OP_SKIP: /* left as soon as it is entered */
		break;
	}
}

static bool steps_match(const struct ignore_pattern *p, const char *text, size_t len)
{
	size_t words = p->step_count / 64 + 1;
	struct states now, next;

	memset(now.bits, 0, words * sizeof(now.bits[0]));
	enter(p, &now, 0);
	for (size_t k = 0; k < len; k++) {
		uint64_t any = 0;

		memset(next.bits, 0, words * sizeof(next.bits[0]));
		for (size_t w = 0; w < words; w++) {
			for (uint64_t left = now.bits[w]; left; left &= left - 1) {
				size_t i = w * 64 + (size_t)__builtin_ctzll(left);

				if (i < p->step_count)
					advance(p, i, (unsigned char)text[k], &next);
			}
		}
		for (size_t w = 0; w < words; w++)
			any |= next.bits[w];
		if (!any)
			return false;
		memcpy(now.bits, next.bits, words * sizeof(now.bits[0]));
	}
	return now.bits[p->step_count / 64] >> p->step_count % 64 & 1;
}

bool ignore_pattern_matches(const struct ignore_pattern *p, const char *name, size_t len,
			    size_t base, bool is_dir)
{
	if (p->never || (p->dir_only && !is_dir))
		return false;
	if (p->by_name) {
		name += base;
		len -= base;
	}
	if (len < p->text_len)
		return false;
	if (p->by_suffix)
		return memcmp(name + len - p->text_len, p->text, p->text_len) == 0;
	if (memcmp(name, p->text, p->text_len) != 0)
		return false;
	if (!p->steps)
		return len == p->text_len;
	return steps_match(p, name + p->text_len, len - p->text_len);
}
