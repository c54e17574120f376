"""What a log has stored, and what a month of it costs."""

from stratalog.objectlog.cost.monthly_cost import Bill, Measured, Prices, Rates, bill, storage_cost
from stratalog.objectlog.cost.storage import Stored, measure_storage
