#include "board.h"
#include "example.h"

void app_main(void)
{
    board_start();
    example();
}
