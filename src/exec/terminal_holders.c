#include "exec/execs_internal.h"
#include "base/fd.h"
#include "base/text.h"

void terminal_attach(struct execs *execs, struct terminal_holder *seat, bool alone)
{
	pthread_mutex_lock(&execs->lock);
	for (struct terminal_holder *s = execs->seats; alone && s; s = s->next) {
		if (!streq(s->id, seat->id))
			continue;
		s->replaced = true;
		latch_set(s->wake_fd);
	}
	seat->next = execs->seats;
	execs->seats = seat;
	pthread_mutex_unlock(&execs->lock);
}

bool terminal_holder_is_replaced(struct execs *execs, const struct terminal_holder *seat)
{
	pthread_mutex_lock(&execs->lock);
	bool replaced = seat->replaced;
	pthread_mutex_unlock(&execs->lock);
	return replaced;
}

size_t terminal_detach(struct execs *execs, struct terminal_holder *seat)
{
	struct terminal_holder **p = &execs->seats;
	size_t left = 0;

	pthread_mutex_lock(&execs->lock);
	while (*p != seat)
		p = &(*p)->next;
	*p = seat->next;
	for (const struct terminal_holder *s = execs->seats; s; s = s->next)
		left += streq(s->id, seat->id);
	pthread_mutex_unlock(&execs->lock);
	return left;
}
