-- Agents refuse a control plane whose epoch is lower than one that they have seen.
CREATE TABLE control_plane (epoch INTEGER NOT NULL) STRICT;
INSERT INTO control_plane (epoch) VALUES (1);
