/* Numbers as text for board_print, without stdio. */
#include "text.h"
#include "board.h"
#include <string.h>

void text_number(const char *name, uint32_t value)
{
    char text[11], *p = text + sizeof text;
    *--p = 0;
    do {
        *--p = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    board_print(name);
    board_print(p);
}

void text_decimal(const char *name, float value)
{
    const float size = value < 0.0f ? -value : value;
    if (!(size < 1e6f)) {
        board_print(name);
        board_print("large");
        return;
    }
    const uint32_t thousandths = (uint32_t)(size * 1000.0f + 0.5f);
    board_print(name);
    text_number(value < 0.0f ? "-" : "", thousandths / 1000);
    text_number(".", thousandths / 100 % 10);
    text_number("", thousandths / 10 % 10);
    text_number("", thousandths % 10);
}

/* Eight words in hexadecimal on a line. */
void text_words(const char *name, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t at = 0; at + 4 <= bytes;) {
        char line[8 * 9 + 2], *to = line;
        for (int i = 0; i < 8 && at + 4 <= bytes; i++, at += 4) {
            uint32_t word;
            memcpy(&word, p + at, sizeof word);
            for (int shift = 28; shift >= 0; shift -= 4)
                *to++ = "0123456789abcdef"[word >> shift & 15];
            *to++ = ' ';
        }
        to[-1] = '\n';
        *to = 0;
        board_print(name);
        board_print(line);
    }
}

int text_good(pmeta_status status, const char *call)
{
    if (status == PMETA_OK) return 1;
    board_print(call);
    board_print(": ");
    board_print(pmeta_message(status));
    board_print("\n");
    return 0;
}
