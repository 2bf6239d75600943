"""What a campaign is made of: its audience, its template, local times, and who comes when.

Room: pipelines. audience.py and template.py make Spark expressions; zones.py, quiet_hours.py and
stagger.py are numpy on the driver, over waves and never over messages.
See: pipelines/campaign.py, which puts them together.
"""
