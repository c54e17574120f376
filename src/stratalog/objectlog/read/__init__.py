"""Reading: finding, fetching and following records."""

from stratalog.objectlog.read.reader import LogReader, Presence, Record
