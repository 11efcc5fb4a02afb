from tinyweb.render_c.ordering import Access, barriers

A, B, C = (0, 64), (64, 128), (128, 192)


def test_dependent_launches_wait() -> None:
    launches = [
        Access(reads=(A,), writes=(B,)),
        Access(reads=(A,), writes=(C,)),  # reads what was only read
        Access(reads=(B,), writes=((200, 264),)),  # reads what the first wrote
        Access(reads=(A,), writes=((300, 364),)),
        Access(reads=(C,), writes=(A,)),  # writes what the one before read
        Access(reads=(), writes=(A,)),  # writes what the one before wrote
        Access(reads=((190, 200),), writes=((400, 401),)),
    ]
    assert barriers(launches) == [False, False, True, False, True, True, False]
    assert barriers([]) == []


def test_parts_of_memory_count() -> None:
    write_half = Access(reads=(), writes=((0, 32),))
    assert barriers([write_half, Access(reads=((32, 64),), writes=())]) == [False, False]
    assert barriers([write_half, Access(reads=((31, 64),), writes=())]) == [False, True]
