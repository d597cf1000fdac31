/* Numbers as text for board_print, without stdio. */
#ifndef TEXT_H
#define TEXT_H
#include "pmeta.h"

void text_number(const char *name, uint32_t value);
void text_decimal(const char *name, float value); /* three places */
void text_words(const char *name, const void *data, size_t bytes);

/* 1 where the status is PMETA_OK; otherwise it prints the call and the reason. */
int text_good(pmeta_status status, const char *call);

#endif
